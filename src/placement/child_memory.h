// The arena's memory in forked children.
//
// A segment that a device may have registered is hidden from children: the kernel would copy its pages at the
// fork, one by one. The heap copies the blocks for the child instead (hugepage_heap.h). Memory that the
// program itself keeps from its children (MADV_DONTFORK) stays so, whether its segment is pinned or not,
// until its block ends.
//
// hide() and show() are called under the mutex of the segments' table. The heap calls the others around a
// fork, in which its thread holds that mutex. show_until_fork() is lock-free.
#pragma once

#include <atomic>

#include "placement/arena_state.h"

namespace pinion {

class ChildMemory {
 public:
  constexpr explicit ChildMemory(ArenaState& arena) : arena_(arena) {}

  /// Hides memory that a device is about to register. False: refused.
  bool hide(Range segment_part) const;
  /// Shows memory again, except what the program keeps from its children.
  void show(Range range) const;
  /// The program shows memory by MADV_DOFORK, that of pinned segments too: until the next fork.
  void show_until_fork() { shown_.store(true); }

  void before_fork() ACQUIRE(arena_.segments.mutex);
  void after_fork_in_parent() RELEASE(arena_.segments.mutex);
  void after_fork_in_child();
  /// Whether children of the fork under way lack this area of the heap.
  bool is_hidden(Range area) const;
  /// Unmaps those parts of a child's copy of the area that children have all the same.
  void leave_out(Range area, Range copy) const;

 private:
  void hide_pinned() const REQUIRES(arena_.segments.mutex);

  ArenaState& arena_;
  std::atomic<bool> shown_{false};  ///< not all pinned segments are hidden
  Range of_stack_;  ///< the pinned segment with the forking thread's stack, which the kernel copies
};

}  // namespace pinion
