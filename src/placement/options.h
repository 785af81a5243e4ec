// The options of placement. Filled before threads start, then only read.
#pragma once

#include <cstdint>

#include "base/options.h"

namespace pinion {

struct PlacementOptions {
  bool hugepages = false;
  std::uint64_t hugepage_threshold = 32 << 10;
  bool hugepage_static = false;
};

OptionTable<PlacementOptions> placement_options();

}  // namespace pinion
