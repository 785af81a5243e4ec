// The learnt profile of option `profile`: its file, and names of call sites that mean the same in another
// run. Slow; the engine's start and the helper only.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "callsite/call_site.h"
#include "predict/predictor.h"

namespace pinion {

/// The path of a rank's profile: `path` of rank 0 or where there are no ranks, else `path`.<rank>.
std::string profile_path(const std::string& path, int rank);
/// Empty, without an error, where the file is still missing. Refuses a file that is no profile.
Error read_profile(const std::string& path, std::string& bytes);
/// Atomically. Replaces a profile or an empty file alone: any other file stays as it is.
Error write_profile(const std::string& path, const std::string& bytes);

/// Names call sites by module and offset of their frames, independent of load addresses. A module is
/// identified by its size in memory. Finding that needs neither a lock nor a read of memory that another
/// thread may be unmapping. A rebuilt module counts as another one.
class StableSites {
 public:
  std::uint64_t name(CallSite site);

 private:
  static constexpr std::size_t kMost = 65536;
  std::unordered_map<CallSite, std::uint64_t> names_;
};

/// The profile of this process, as it begins and as it ends. The engine's start, then the helper.
class LearntProfile {
 public:
  LearntProfile(const std::string& path, int rank);

  bool wanted() const { return !path_.empty(); }
  /// Begins a new predictor with the profile that was read; reports a profile that does not fit.
  void begin(Predictor& predictor) const;
  std::uint64_t site_name(CallSite site) { return sites_.name(site); }
  /// Writes the profile of the domain that learnt most.
  void keep(const std::vector<std::string>& profiles) const;

 private:
  const std::string path_;
  std::string bytes_;  ///< as it was read at the start, for each domain to begin with
  StableSites sites_;
};

}  // namespace pinion
