// Peers' keys of more than 64 bits (FI_MR_RAW), which the provider turns into keys of 64 bits for as long as
// an operation needs them.
//
// Any thread; guarded by its mutex, under which nothing of a provider is called. Before the domain closes,
// unmap_all().
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_domain.h>

#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

class RawKeys {
 public:
  /// 0, or a code of libfabric.
  int map(fid_domain* domain, const RawKey& raw, std::uint64_t& key);
  void unmap(fid_domain* domain, std::uint64_t key);
  /// Also those of operations still under way.
  void unmap_all(fid_domain* domain);

 private:
  Mutex mutex_;
  std::vector<std::uint64_t> mapped_ GUARDED_BY(mutex_);
};

}  // namespace pinion::transfer
#endif
