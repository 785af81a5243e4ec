#include "placement/segment_table.h"

#include <algorithm>

#include "base/assert.h"

namespace pinion {

namespace {

/// The thread gives or takes the memory of granules.
constinit thread_local bool t_changing = false;

}  // namespace

void SegmentTable::cut(Range range, Address at) {
  Segment& first = segments_[granules_.index_of(range.begin)];
  const std::uint64_t number = first.number;
  remove(range);
  add({range.begin, at});
  first.number = number;
  add({at, range.end});
}

void SegmentTable::add(Range range) {
  const std::size_t first = granules_.index_of(range.begin);
  segments_[first] = {.range = range, .number = ++last_number_};
  granules_.for_each(range, [&](std::size_t i, Range) NO_THREAD_SAFETY_ANALYSIS {
    PINION_ASSERT(first_[i] == 0);
    first_[i] = static_cast<std::uint16_t>(first + 1);
  });
  figures_.bytes += range.bytes();
  figures_.most_segments = std::max(figures_.most_segments, ++figures_.segments);
  figures_.most_bytes = std::max(figures_.most_bytes, figures_.bytes);
}

void SegmentTable::remove(Range range) {
  granules_.for_each(range, [this](std::size_t i, Range) NO_THREAD_SAFETY_ANALYSIS { first_[i] = 0; });
  segments_[granules_.index_of(range.begin)] = {};
  --figures_.segments;
  figures_.bytes -= range.bytes();
}

Segment* SegmentTable::around(Address address) {
  const std::size_t first = first_[granules_.index_of(address)];
  return first == 0 ? nullptr : &segments_[first - 1];
}

Segment* SegmentTable::find(Range range) {
  Segment* const segment = around(range.begin);
  return segment != nullptr && segment->range == range ? segment : nullptr;
}

void SegmentTable::set_in_change(Range range, bool changes) {
  t_changing = changes;
  granules_.for_each(range, [&](std::size_t i, Range) { in_change_[i].store(changes); });
}

bool SegmentTable::is_in_change(Range range) const {
  if (t_changing) return false;
  bool changes = false;
  granules_.for_each(range, [&](std::size_t i, Range) { changes = changes || in_change_[i].load(); });
  return changes;
}

void SegmentTable::end_changes() {
  for (std::atomic<bool>& changes : in_change_) changes.store(false);
}

}  // namespace pinion
