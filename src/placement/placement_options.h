// The options of placement. Filled before threads start, then only read.
#pragma once

#include <cstdint>

#include "base/options.h"

namespace pinion {

/// Where buffers get hugepages from: those that are there from the helper, while it has let them go; or
/// large blocks of malloc from a heap of them.
enum class Hugepages : std::uint8_t { off, automatic, heap };

struct PlacementOptions {
  Hugepages hugepages = Hugepages::automatic;
  std::uint64_t hugepage_threshold = 32 << 10;
  std::uint64_t preregister = 0;        ///< the arena's bytes
  std::uint64_t preregister_mmaps = 0;  ///< from so many bytes on; 0: none
  bool preregister_remote = false;      ///< segments have rights for peers
  bool preregister_ahead = true;        ///< segments are registered before their first request
  bool hugepage_static = false;
};

OptionTable<PlacementOptions> placement_options();

}  // namespace pinion
