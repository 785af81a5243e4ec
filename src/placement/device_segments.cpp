#include "placement/device_segments.h"

#include <sys/mman.h>

#include <optional>

#include "monitor/memory_events.h"
#include "placement/kernel_pages.h"

namespace pinion {

Range DeviceSegments::at(Address address) {
  const HeapLock lock(arena_.segments.mutex);
  const Segment* const segment = arena_.segments.around(address);
  return segment != nullptr && segment->of_heap ? segment->range : Range{};
}

bool DeviceSegments::is_pinned(Address address) {
  const HeapLock lock(arena_.segments.mutex);
  return arena_.segments.around(address)->pinned;
}

std::uint64_t DeviceSegments::number_at(Address address) {
  const HeapLock lock(arena_.segments.mutex);
  const Segment* const segment = arena_.segments.around(address);
  return segment == nullptr ? 0 : segment->number;
}

Range DeviceSegments::pin(Range range, Range request) {
  if (!range.contains(request)) return {};
  const HeapLock lock(arena_.segments.mutex);
  Segment* const segment = arena_.segments.find(range);
  if (segment == nullptr || !segment->of_heap) return {};
  const Range part = arena_.marks.longest_whole(range);
  if (!part.contains(request) || !children_.hide(part)) return {};
  segment->pinned = true;
  return part;
}

bool DeviceSegments::unpin(Range range) {
  const HeapLock lock(arena_.segments.mutex);
  Segment& segment = *arena_.segments.find(range);
  segment.pinned = false;
  if (segment.of_heap) children_.show(range);
  return !segment.of_heap;
}

void DeviceSegments::want(Range range) {
  {
    const HeapLock lock(arena_.segments.mutex);
    arena_.segments.find(range)->wanted = true;
  }
  if (SegmentSink* const sink = sink_.load(std::memory_order_acquire)) sink->wanted();
}

Range DeviceSegments::take_wanted() {
  const HeapLock lock(arena_.segments.mutex);
  Range found;
  arena_.segments.for_each([&](Segment& segment) {
    if (!segment.wanted || !found.empty()) return;
    segment.wanted = false;
    if (segment.of_heap && !segment.pinned) found = segment.range;
  });
  return found;
}

void DeviceSegments::leave(Range range) {
  bool pinned = false;
  {
    const HeapLock lock(arena_.segments.mutex);
    Segment& segment = *arena_.segments.find(range);
    segment.of_heap = false;
    pinned = segment.pinned;
  }
  if (!pinned) return give_back(range);
  memory_events::begin({range});
  memory_events::end(range);
}

void DeviceSegments::give_back(Range range) {
  std::optional<SegmentTable::Changing> changing;
  {
    const HeapLock lock(arena_.segments.mutex);
    const Segment* const segment = arena_.segments.find(range);
    if (segment == nullptr || segment->pinned || arena_.segments.is_in_change(range)) return;
    changing.emplace(arena_.segments, range);
    if (!arena_.marks.laid_over(range).empty())
      return;  // the program's: the granules stay out of use as long
  }
  if (!map_over(range, PROT_NONE, MAP_NORESERVE)) return;  // they stay out of use
  const HeapLock lock(arena_.segments.mutex);
  arena_.marks.forget(range);
  arena_.segments.remove(range);
}

void DeviceSegments::give_back_left(Address address) {
  Range left;
  {
    const HeapLock lock(arena_.segments.mutex);
    const Segment* const segment = arena_.segments.around(address);
    if (segment == nullptr || segment->of_heap || segment->pinned) return;
    left = segment->range;
  }
  give_back(left);
}

}  // namespace pinion
