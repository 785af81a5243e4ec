// The arena: addresses of this process whose memory devices register in whole segments, once. The heap takes
// its areas from it; each area is a segment, and is cut where its use ends before it is registered. A block's
// request is then served by its segment's registration (lease/arena_leases.h).
//
// Owns the reserved addresses, and an object for each job: what the heap does to memory of its blocks
// (block_memory.h), what devices do to segments (device_segments.h), what the program does to the memory
// (program_changes.h), and what children get of it (child_memory.h).
//
// map() and cut() are called under a shard's mutex, unmap() without any. Any thread; never a hook.
#pragma once

#include <cstddef>
#include <cstdint>

#include "placement/block_memory.h"

namespace pinion {

class Arena {
 public:
  /// `beyond`: where areas come from without an arena, and beyond it.
  constexpr explicit Arena(PageSource& beyond) : beyond_(beyond) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Before threads allocate. `grows`: the heap may grow beyond the arena. False: the system has no such
  /// addresses.
  bool reserve(std::size_t bytes, bool grows);
  /// All its addresses; empty without an arena. Constant once reserved.
  const Range& range() const { return state_.granules.range; }
  const Granules& granules() const { return state_.granules; }

  /// Pages for an area of the heap, as PageSource::map() has it.
  Pages map(std::size_t least, std::size_t wanted);
  void unmap(const Pages& pages);
  /// Makes two segments of one, at the first granule from the address on: the place, or 0 where that is
  /// outside, or a device may have registered the segment.
  Address cut(Range segment, Address from);
  /// Whether no other thread stays inside.
  bool is_open() { return state_.segments.mutex.comes_free(); }

  BlockMemory& blocks() { return blocks_; }
  DeviceSegments& devices() { return devices_; }
  ProgramChanges& changes() { return changes_; }
  ChildMemory& children() { return children_; }

  SegmentTable::Figures figures();

 private:
  Pages take(std::size_t bytes);

  PageSource& beyond_;
  bool grows_ = false;
  ArenaState state_;
  ChildMemory children_{state_};
  ProgramChanges changes_{state_, children_};
  DeviceSegments devices_{state_, children_};
  BlockMemory blocks_{state_, devices_, changes_};
};

/// The arena of process_heap() (hugepage_heap.h).
Arena& process_arena();

}  // namespace pinion
