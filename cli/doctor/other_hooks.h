// The hooks that a program in the same environment meets: other libraries' over libc's memory functions, and
// libfabric's choice of a memory monitor. Ordinary code, one thread.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace pinion::cli {

/// "munmap by libucm.so.0", for each function that another library has redirected or stands before. Asked
/// before Pinion hooks anything itself.
std::vector<std::string> hooks_of_others();

struct LibfabricFinding {
  std::string version;  ///< "1.17"; empty where libfabric is missing
  Error error;          ///< why its registration cache cannot be fed with Pinion's memory events
  /// The file of a provider with a cache of its own, which never starts an imported monitor; empty: none.
  std::string plugin;
};

/// Tries it, in this process.
LibfabricFinding feed_libfabric();

}  // namespace pinion::cli
