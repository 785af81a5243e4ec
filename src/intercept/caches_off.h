// The registration caches of the libraries above the verbs front: settings that `pinion run` names in
// kCachesOffVariable. Most are made once, before the program's main(), where the libraries read them. Those
// of UCX hold while MPI begins. The user's own variables stay. Threads that begin MPI only.
#pragma once

#include <string>
#include <vector>

namespace pinion {

/// Makes the settings that are for the MPI library alone, and takes them back at its end: other users of the
/// same library ask it to survive the death of a peer, for which it needs its cache.
class CachesOffInMpi {
 public:
  CachesOffInMpi();
  ~CachesOffInMpi();
  CachesOffInMpi(const CachesOffInMpi&) = delete;
  CachesOffInMpi& operator=(const CachesOffInMpi&) = delete;

 private:
  std::vector<std::string> set_;
};

}  // namespace pinion
