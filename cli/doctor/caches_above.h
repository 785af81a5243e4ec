// Registration caches of the libraries that stand above a front of Pinion's: with one of them active,
// Pinion sees each buffer once, and registrations stay for as long as that cache keeps them. Which libraries
// are installed, in which version, and the documented variables that switch their caches off or limit them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "lease/engine_options.h"

namespace pinion::cli {

struct CacheAbove {
  std::string library;                                   ///< with its version
  std::vector<std::pair<std::string, std::string>> off;  ///< variables and the values that switch it off
  /// Variables by which the library takes a registration to cost what a cache's hit does, with those values:
  /// without its cache it would copy buffers instead of registering them (docs/library-limits.md).
  std::vector<std::pair<std::string, std::string>> prices;
  std::vector<std::string> most_bytes, most_regions;  ///< variables that limit it
  std::string most_unreleased;                        ///< limits what it holds of freed memory; empty: none
  /// The settings hold for MPI libraries alone: without its cache UCX dies where a peer dies in a rendezvous
  /// and the endpoint has peer error handling (openucx/ucx issue 11467), which MPI libraries do not ask for.
  bool off_in_mpi_only = false;
  /// Its registrations were seen to lead into the front (front_reach.h); else its cache stays on.
  bool is_met = false;
};

/// Providers of libfabric's for libibverbs that are plug-ins: in a folder beside the library, or flat there
/// (Intel's). Patterns below the library's folder.
constexpr const char* kVerbsPlugins[] = {"libfabric/libverbs*-fi.so", "libverbs*-fi.so"};

/// Lets caches_above() look beside the command's programs first (mpi_libraries.h). Called before it.
void look_for_caches_of(const CommandLine& command);

/// Returns the caches of the libraries that programs started from here would find. Loads them.
/// Once in this process.
const std::vector<CacheAbove>& caches_above();

/// Returns the settings that a program gets where the cache goes off: without `prices` where the user's own
/// variable keeps the cache.
std::vector<std::pair<std::string, std::string>> settings_of(const CacheAbove& cache);

/// The command that limits the caches of UCX and libfabric to so many bytes, whichever the program uses.
std::string limit_caches_command(std::uint64_t bytes);

/// The command that switches them off, with their prices.
std::string caches_off_command();

/// Limits of a process that caches get which stay on in programs without MPI, by the variables' names.
std::map<std::string, std::uint64_t> limits_of_kept_caches(const CacheAbove& cache, const Options& options);

/// The bound on freed memory that such a cache gets, also on nodes with a GPU: "NAME=VALUE". Empty: the
/// library has a bound, or the user has set it.
std::string bound_of_freed(const CacheAbove& cache);

/// For kCachesOffVariable: the caches that are met by the front, without variables that the user has set.
std::string caches_to_switch_off(const Options& options);

}  // namespace pinion::cli
