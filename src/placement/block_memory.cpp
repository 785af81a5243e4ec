#include "placement/block_memory.h"

#include <sys/mman.h>

#include <optional>

#include "placement/kernel_pages.h"

namespace pinion {

/// Mappings that replaced the heap's memory have gone by reclaim().
bool BlockMemory::make_whole(Range block) {
  ProgramMarks& marks = arena_.marks;
  if (!marks.may_have(block)) return true;
  const bool pinned = devices_.is_pinned(block.begin);
  if (!pinned) marks.clear(Mark::replaced, block);
  marks.clear(Mark::withheld, block);
  if (!marks.any(Mark::deprived, block) && !marks.any(Mark::unshared, block)) return true;
  if (!make_plain_unseen(block, pinned)) {
    marks.for_each_run(Mark::deprived, block, [this](Range run) { arena_.note_replaced(run); });
    return false;
  }
  marks.clear(Mark::deprived, block);
  marks.clear(Mark::unshared, block);
  return true;
}

bool BlockMemory::make_plain(Range range) {
  return make_plain_unseen(range, arena_.granules.range.contains(range) && devices_.is_pinned(range.begin));
}

Range BlockMemory::laid_over(Range range) const { return arena_.marks.laid_over(range); }

bool BlockMemory::reclaim(Range block) {
  if (!arena_.marks.may_have(block)) return true;
  if (arena_.marks.any(Mark::unshared, block)) {
    arena_.marks.clear(Mark::unshared, block);
    if (!devices_.is_pinned(block.begin)) hide_unseen(block, false);
  }
  bool renewed = true;
  arena_.marks.for_each_run(Mark::laid_over, block, [&](Range run) { renewed = renew(run) && renewed; });
  return renewed;
}

/// In areas of the heap the memory is free; elsewhere addresses stay reserved.
bool BlockMemory::vacate(Range range) {
  if (laid_over(range).empty()) return false;
  arena_.granules.for_each(range, [this](std::size_t, Range part) {
    const bool in_area = !devices_.at(part.begin).empty();
    if (laid_over(part).empty()) return;
    arena_.marks.for_each_run(Mark::laid_over, part, [&](Range run) {
      if (in_area)
        renew(run);
      else if (map_over(run, PROT_NONE, MAP_NORESERVE))
        arena_.marks.clear(Mark::laid_over, run);
    });
    devices_.give_back_left(part.begin);
  });
  return true;
}

bool BlockMemory::lay_over(Range range) {
  const HeapLock lock(arena_.segments.mutex);
  if (arena_.segments.is_in_change(range)) return false;
  arena_.note_replaced(range);
  return true;
}

/// A registration keeps its pages. Others go back to the kernel, as by munmap.
Recycled BlockMemory::recycle(Range range, bool changed) {
  if (!arena_.granules.range.contains(range)) return Recycled::kept;
  if (!devices_.is_pinned(range.begin)) return renew(range) ? Recycled::zeroed : Recycled::refused;
  const ProgramMarks& marks = arena_.marks;
  changed = changed || changes_.locked_all() || marks.any(Mark::deprived, range) ||
            marks.any(Mark::unshared, range) || marks.any(Mark::withheld, range);
  if (!reclaim(range)) return Recycled::refused;
  if (!changed) return Recycled::kept;
  changes_.unlock(range);
  arena_.marks.clear_wishes(range);
  if (make_plain_unseen(range, true))  // hidden, as the rest of the segment
    arena_.marks.clear(Mark::deprived, range);
  else
    changes_.note_deprived(range);
  return Recycled::kept;
}

bool BlockMemory::may_drop_free(Range range) {
  return arena_.granules.range.contains(range) && !devices_.is_pinned(range.begin) &&
         laid_over(range).empty();
}

bool BlockMemory::drop_free(Range range, bool uncharges) {
  std::optional<SegmentTable::Changing> changing;
  {
    const HeapLock lock(arena_.segments.mutex);
    if (arena_.segments.around(range.begin)->pinned || arena_.segments.is_in_change(range)) return false;
    changing.emplace(arena_.segments, range);
    if (!laid_over(range).empty()) return false;
  }
  return uncharges ? uncharge(range) : discard_seen(range);
}

/// No registration has this memory, so that nothing remembers the pages that have gone.
bool BlockMemory::uncharge(Range range) {
  if (!map_over(range, PROT_NONE, MAP_NORESERVE)) return false;
  arena_.marks.clear(Mark::laid_over, range);
  arena_.marks.clear(Mark::replaced, range);
  arena_.marks.set(Mark::deprived, range);
  return true;
}

bool BlockMemory::charge(Range block) const {
  bool charged = true;
  if (arena_.marks.may_have(block))
    arena_.marks.for_each_run(Mark::deprived, block, [&](Range run) {
      charged = protect_unseen(run, PROT_READ | PROT_WRITE) && charged;
    });
  return charged;
}

Range BlockMemory::first_withheld(Range range) const {
  return arena_.marks.may_have(range) ? arena_.marks.first_run(Mark::withheld, range) : Range{};
}

/// A registration of the segment has other pages still, so the marks stay until the segment is new.
bool BlockMemory::renew(Range range) {
  if (!map_over(range, PROT_READ | PROT_WRITE, 0)) {
    arena_.note_replaced(range);
    return false;
  }
  advise_hugepages(range);
  arena_.marks.clear(Mark::laid_over, range);
  arena_.marks.clear_wishes(range);
  const HeapLock lock(arena_.segments.mutex);
  if (arena_.segments.around(range.begin)->pinned) return true;
  arena_.marks.clear(Mark::replaced, range);
  arena_.marks.clear(Mark::deprived, range);
  return true;
}

}  // namespace pinion
