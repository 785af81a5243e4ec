// Registration caches of the libraries that stand above a front of Pinion's: with one of them active,
// Pinion sees each buffer once, and registrations stay for as long as that cache keeps them. Which libraries
// are installed, in which version, and the documented variables that switch their caches off or limit them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_options.h"

namespace pinion::cli {

struct CacheAbove {
  std::string library;                                   ///< with its version
  std::vector<std::pair<std::string, std::string>> off;  ///< variables and the values that switch it off
  std::vector<std::string> most_bytes, most_regions;     ///< variables that limit it
  /// The settings hold for MPI libraries alone: without its cache UCX dies where a peer dies in a rendezvous
  /// and the endpoint has peer error handling (openucx/ucx issue 11467), which MPI libraries do not ask for.
  bool off_in_mpi_only = false;
  /// Its registrations were seen to lead into the front (front_reach.h); else its cache stays on.
  bool is_met = false;
};

/// Returns the caches of the libraries that programs started from here would find. Loads them.
/// Once in this process.
const std::vector<CacheAbove>& caches_above();

/// The command that limits the caches of UCX and libfabric to so many bytes, whichever the program uses.
std::string limit_caches_command(std::uint64_t bytes);

/// The command that switches them off.
std::string caches_off_command();

/// Limits of a process that caches get which stay on in programs without MPI, by the variables' names.
std::map<std::string, std::uint64_t> limits_of_kept_caches(const CacheAbove& cache, const Options& options);

/// For kCachesOffVariable: the caches that are met by the front, without variables that the user has set.
std::string caches_to_switch_off(const Options& options);

}  // namespace pinion::cli
