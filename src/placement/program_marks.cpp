#include "placement/program_marks.h"

#include <algorithm>

namespace pinion {

bool ProgramMarks::begin(Range arena, PageSource& source) {
  for (ChunkMarks& marks : marks_) {
    void* const zeros = source.map_records(ChunkMarks::bytes_for(arena));
    if (zeros == nullptr) return false;
    marks.begin(arena, zeros);
  }
  return true;
}

void ProgramMarks::set(Mark mark, Range range) {
  of(mark).set(range);
  granules_.for_each(range,
                     [this](std::size_t i, Range) { had_mark_[i].store(true, std::memory_order_release); });
}

void ProgramMarks::set_replaced(Range range) {
  set(Mark::replaced, range);
  set(Mark::laid_over, range);
  clear_wishes(range);
}

void ProgramMarks::forget(Range segment) {
  for (ChunkMarks& marks : marks_) marks.clear(segment);
  granules_.for_each(segment,
                     [this](std::size_t i, Range) { had_mark_[i].store(false, std::memory_order_relaxed); });
}

bool ProgramMarks::may_have(Range range) const {
  if (range.empty() || !granules_.range.contains(range)) return false;
  bool may = false;
  granules_.for_each(
      range, [&](std::size_t i, Range) { may = may || had_mark_[i].load(std::memory_order_acquire); });
  return may;
}

Range ProgramMarks::first_run(Mark mark, Range range) const {
  const Address begin = of(mark).find(range, true);
  return {begin, of(mark).find({begin, range.end}, false)};
}

Range ProgramMarks::longest_whole(Range segment) const {
  const ChunkMarks &deprived = of(Mark::deprived), &replaced = of(Mark::replaced);
  Range longest{segment.begin, segment.begin};
  for (Address at = segment.begin; at < segment.end;) {
    const Range rest{at, segment.end};
    const Address end = std::min(deprived.find(rest, true), replaced.find(rest, true));
    if (end - at > longest.bytes()) longest = {at, end};
    // Past the marks of one kind; those of the other end an empty part.
    at = end == at ? std::max(deprived.find(rest, false), replaced.find(rest, false)) : end;
  }
  return longest;
}

}  // namespace pinion
