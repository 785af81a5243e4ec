// Whether memory is short on the node, or in a control group of this process: threads stall for it
// (/proc/pressure/memory, memory.pressure), a group is nearly full (memory.high, memory.max; version 1
// alike), or the node has hardly any left (MemAvailable).
//
// Owns descriptors of the kernel's files: three, and four for the process's own group and for each one around
// it that has a bound at the start. open() comes before the helper thread, which calls the rest.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/kept_text.h"
#include "base/memory_groups.h"

namespace pinion::node {

/// At one time. Each is 0 where the kernel tells nothing.
struct PressureSample {
  double stalled = 0;    ///< share of the last ten seconds in which some thread waited for memory
  double full = 0;       ///< most of a group's bounds that is in use, page cache out of use left out
  double exhausted = 0;  ///< least available of the node that counts as short, over what is available
};

/// `before`: the answer until now, kept in between the clear cases.
bool is_short(const PressureSample& sample, bool before);

class NodePressure {
 public:
  explicit NodePressure(std::string root = system_root()) : root_(std::move(root)) {}

  /// Finds the groups and opens the kernel's files, before the first look.
  void open();
  /// Reads the files, if the last time was long enough ago. Returns whether it did.
  bool look(Time now);
  /// The answer of the last look.
  bool is_short() const { return short_; }

  static constexpr Duration kBetweenLooks = 500 * kMillisecond;
  static constexpr Duration kBetweenLooksWhileShort = 100 * kMillisecond;

 private:
  struct Group {
    KeptText soft_bound, bound, usage, statistics;
    bool unified;
  };
  PressureSample sample() const;
  static double fullness(const Group& group);

  const std::string root_;
  KeptText node_stalls_, group_stalls_, node_memory_;
  std::vector<Group> groups_;
  Time looked_ = 0;
  bool short_ = false;
};

}  // namespace pinion::node
