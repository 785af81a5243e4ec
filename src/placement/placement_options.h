// The options of placement. Filled before threads start, then only read.
#pragma once

#include <cstdint>

#include "base/options.h"

namespace pinion {

struct PlacementOptions {
  bool hugepages = false;
  std::uint64_t hugepage_threshold = 32 << 10;
  std::uint64_t preregister = 0;        ///< the arena's bytes
  std::uint64_t preregister_mmaps = 0;  ///< from so many bytes on; 0: none
  bool preregister_alias = false;
  bool preregister_remote = false;  ///< segments have rights for peers
  bool preregister_ahead = true;    ///< segments are registered before their first request
  bool hugepage_static = false;
};

OptionTable<PlacementOptions> placement_options();

}  // namespace pinion
