// Memory of the arena on its way from one block of the heap to the next: whatever the program did to it is
// undone here. The program may take rights from memory of a block, or put another mapping in its place, and
// then free the block.
//
// A mapping of the program over memory that the heap has free is the program's: the heap keeps off it until
// the program unmaps it. Free granules and segments that were left stay out of use as long.
//
// Owns nothing. laid_over() and first_withheld() are lock-free; may_drop_free() takes the mutex of the
// segments' table. The heap calls all else without its locks, for it takes that mutex, or runs hooks. Memory
// outside of the arena is always whole.
#pragma once

#include <cstdint>

#include "placement/arena_state.h"
#include "placement/device_segments.h"
#include "placement/program_changes.h"

namespace pinion {

/// The contents that recycled memory has left.
enum class Recycled : std::uint8_t { refused, kept, zeroed };

class BlockMemory {
 public:
  constexpr BlockMemory(ArenaState& arena, DeviceSegments& devices, ProgramChanges& changes)
      : arena_(arena), devices_(devices), changes_(changes) {}

  /// Before memory becomes a block: undoes what the program did to it, such as taking its rights away.
  /// False: the memory stays as it is, and is laid_over().
  bool make_whole(Range block);
  /// Before memory of a block is free, wherever it lies: undoes what the program left on it beside its
  /// contents. False: refused.
  bool make_plain(Range range);
  /// The first part over which the program has laid other mappings since reclaim(); empty: there is none. The
  /// heap may have no block there; the memory is the program's all the same.
  Range laid_over(Range range) const;
  /// Puts memory of zeros in the place of such mappings, before a block is free. False: some of them stay.
  bool reclaim(Range block);
  /// Ends such mappings outside of blocks: munmap. Whether there were any.
  bool vacate(Range range);
  /// The program is about to lay a mapping there: from now on the memory is laid_over(). False: another
  /// thread gives it to the kernel, or takes it.
  bool lay_over(Range range);
  /// Memory of a mapping that has ended, before it is free: readable and writable, whatever the program did
  /// to it. Refused: it stays out of use. `changed`: the program may have left more than contents there.
  /// Without that, registered memory takes no call of the kernel.
  Recycled recycle(Range range, bool changed);

  /// Whether drop_free() may give the contents of free memory back to the kernel: no device has registered
  /// it, and no mapping of the program lies there.
  bool may_drop_free(Range range);
  /// Gives them back; zeros are left. `uncharges`: the memory has no rights until charge() or make_whole().
  /// False: it may not be, or the kernel refuses.
  bool drop_free(Range range, bool uncharges);
  /// Before such memory becomes a block: lets the system charge it. False: the system has no room. Lock-free.
  bool charge(Range block) const;

  /// Whether the program has unmapped memory past HugepageHeap::unmap() since this was asked.
  bool withholds() { return changes_.take_withheld(); }
  /// The first such part of the range; empty: there is none.
  Range first_withheld(Range range) const;
  /// The caller ends the mappings there.
  void forget_withheld(Range part) { arena_.marks.clear(Mark::withheld, part); }

 private:
  bool renew(Range range);
  bool uncharge(Range range);

  ArenaState& arena_;
  DeviceSegments& devices_;
  ProgramChanges& changes_;
};

}  // namespace pinion
