// Which of a node's processes have a helper, and on which terms: the policies of Li et al. (CF'11), section
// 5, and `sleeping`. Pure functions of the processes' posts; the engine and the simulator call the same ones.
//
// A process without a helper is the paper's leave-pinned: its registrations stay, under the limits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "node/node_options.h"

namespace pinion::node {

/// A process's post about itself.
struct Standing {
  std::uint64_t need = 0;  ///< bytes that it would have registered under leave-pinned
  std::uint64_t tie = 0;   ///< at random: decides between equal needs
};

struct Terms {
  bool helper = true;
  /// n * (t_slice + t_cs) of equation (2): how long the helper may wait for its turn on a core it shares.
  Duration turn = 0;
  /// Which of the idle cores; -1: wherever the kernel likes.
  int idle_core = -1;
};

/// The slices of a core that helpers share.
struct TimeSlices {
  Duration slice = 4 * kMillisecond;
  Duration context_switch = 5 * kMicrosecond;
};

/// The terms of process `self` of `processes`, on a node with so many idle cores.
Terms terms_of(PolicyKind policy, const std::vector<Standing>& processes, std::size_t self, int idle_cores,
               TimeSlices slices);

/// The part of process `self` of `limit`: its need, where all needs fit, else in proportion to it.
std::uint64_t fair_share(const std::vector<Standing>& processes, std::size_t self, std::uint64_t limit);

}  // namespace pinion::node
