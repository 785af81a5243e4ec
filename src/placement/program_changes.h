// The arena meets what the program does to its memory: rights taken away, other mappings laid over,
// advice, munmap. The heap undoes it when the block ends or becomes a new one (block_memory.h).
//
// Owns the program's wishes for all of its memory. Lock-free, for hooks. Ranges lie in the arena.
#pragma once

#include <atomic>

#include "placement/arena_state.h"
#include "placement/child_memory.h"

namespace pinion {

class ProgramChanges {
 public:
  constexpr ProgramChanges(ArenaState& arena, ChildMemory& children) : arena_(arena), children_(children) {}

  /// The program takes rights from this memory.
  void note_deprived(Range range);
  /// Other pages are about to take the place of this memory.
  void note_replaced(Range range);
  /// The kernel has refused those pages: the memory has its own, as before.
  void note_kept(Range range);
  bool is_whole(Range range) const { return arena_.marks.is_whole(range); }
  bool is_replaced(Range range) const { return arena_.marks.any(Mark::replaced, range); }
  /// Whether other threads give or take the memory of its granules: no mapping may be laid there now.
  bool is_in_change(Range range) const { return arena_.segments.is_in_change(range); }

  /// Before madvise. `wish`: the program's call, and no device's.
  void advise(Range range, int advice, bool wish);
  /// Leaves the memory mapped without rights: that of blocks for the heap, other mappings unmapped. False:
  /// the kernel has refused.
  bool withhold(Range range);
  /// Whether withhold() was called since this was asked.
  bool take_withheld() { return withheld_.exchange(false); }

  /// mlockall: whether the kernel locks new memory of the process.
  void note_locks_future(bool locks) { locks_future_.store(locks, std::memory_order_relaxed); }
  /// mlockall: memory may be locked from now on that no other call has named.
  void note_locked_all() { locked_all_.store(true, std::memory_order_relaxed); }
  bool locked_all() const { return locked_all_.load(std::memory_order_relaxed); }
  /// Unlocks memory, unless new memory of the process is locked.
  void unlock(Range range) const;

 private:
  ArenaState& arena_;
  ChildMemory& children_;
  std::atomic<bool> locks_future_{false};
  std::atomic<bool> locked_all_{false};
  std::atomic<bool> withheld_{false};
};

}  // namespace pinion
