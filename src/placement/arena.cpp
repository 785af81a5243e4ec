#include "placement/arena.h"

#include <algorithm>

#include "placement/kernel_pages.h"

namespace pinion {

namespace {

/// Segments are multiples of this, where the heap has no reason for another size.
constexpr std::size_t kUsualSegment = std::size_t{32} << 20;

}  // namespace

bool Arena::reserve(std::size_t bytes, bool grows) {
  bytes = std::min(bytes, Granules::kMostAddresses);
  Granules& granules = state_.granules;
  granules.bits = Granules::bits_for(bytes);
  Range range = reserve_unseen(granules.count_for(bytes) << granules.bits);
  if (!range.empty() && !state_.marks.begin(range, beyond_)) {
    unmap_unseen(range);
    range = {};
  }
  granules.range = range;
  grows_ = grows || range.empty();
  return !range.empty();
}

Pages Arena::map(std::size_t least, std::size_t wanted) {
  if (range().empty()) return beyond_.map(least, wanted);
  // Some blocks of this size fit, without much memory that is registered for nothing.
  const std::size_t roomy = beyond_.charges_untouched()
                                ? least
                                : std::min(wanted, std::max(least, (4 * least + kUsualSegment - 1) /
                                                                       kUsualSegment * kUsualSegment));
  Pages pages = take(roomy);
  if (pages.range.empty() && least < roomy) pages = take(least);
  return pages.range.empty() && grows_ ? beyond_.map(least, wanted) : pages;
}

Pages Arena::take(std::size_t bytes) {
  const HeapLock lock(state_.segments.mutex);
  const auto is_clear = [this](Range range) { return state_.marks.laid_over(range).empty(); };
  Pages pages{state_.segments.find_free(bytes, is_clear), Backing::base, true};
  if (pages.range.empty()) return {};
  const SegmentTable::Changing changing(state_.segments, pages.range);
  if (!is_clear(pages.range) || !commit_unseen(pages)) return {};
  state_.segments.add(pages.range);
  return pages;
}

Address Arena::cut(Range range, Address from) {
  if (!this->range().contains(range)) return 0;
  const Address at = state_.granules.ceil(from);
  const HeapLock lock(state_.segments.mutex);
  if (at <= range.begin || at >= range.end || state_.segments.find(range)->pinned) return 0;
  state_.segments.cut(range, at);
  return at;
}

void Arena::unmap(const Pages& pages) {
  if (range().contains(pages.range))
    devices_.leave(pages.range);
  else
    beyond_.unmap(pages);
}

SegmentTable::Figures Arena::figures() {
  const HeapLock lock(state_.segments.mutex);
  return state_.segments.figures();
}

}  // namespace pinion
