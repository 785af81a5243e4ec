// The options of the registry: limits of a process. Filled before threads start, then only read.
#pragma once

#include <cstdint>

#include "base/options.h"

namespace pinion {

struct RegistryOptions {
  /// Bytes; 0: the least of RLIMIT_MEMLOCK, the cgroup's and the node's memory (registry/budget.h).
  std::uint64_t limit = 0;
  std::uint64_t limit_regions = 0;
};

OptionTable<RegistryOptions> registry_options();

}  // namespace pinion
