#include "placement/arena.h"

#include <algorithm>

#include "placement/kernel_pages.h"

namespace pinion {

bool Arena::reserve(std::size_t bytes, bool grows) {
  Range range = reserve_unseen(std::min(Granules::count_for(bytes), kMostGranules) * kGranule);
  if (!range.empty() && !state_.marks.begin(range, beyond_)) {
    unmap_unseen(range);
    range = {};
  }
  state_.granules.range = range;
  grows_ = grows || range.empty();
  return !range.empty();
}

Pages Arena::map(std::size_t least, std::size_t wanted) {
  if (range().empty()) return beyond_.map(least, wanted);
  // Some blocks of this size fit, without much memory that is registered for nothing.
  const std::size_t roomy = std::min(wanted, std::max(least, Granules::count_for(4 * least) * kGranule));
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
  if (!is_clear(pages.range) || !(state_.views.map(pages) || commit_unseen(pages))) return {};
  state_.segments.add(pages.range);
  return pages;
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
