#include "placement/second_views.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "placement/kernel_pages.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

namespace pinion {

bool SecondViews::map(Pages& pages) {
  const Range view = used_ ? map_view_unseen(pages.range.bytes()) : Range{};
  if (view.empty()) return false;
  if (!view_unseen(view, pages.range)) {
    unmap_unseen(view);
    reserve_unseen_at(pages.range);  // the kernel may have emptied the addresses before it refused
    return false;
  }
  pages.backing = Backing::base;
  granules_.for_each(pages.range, [&](std::size_t i, Range part) {
    views_[i].store(view.begin + (part.begin - pages.range.begin), std::memory_order_release);
  });
  return true;
}

void SecondViews::forget(Range segment) {
  granules_.for_each(segment,
                     [this](std::size_t i, Range) { views_[i].store(0, std::memory_order_relaxed); });
}

Range SecondViews::of(Range range) const {
  const std::size_t i = granules_.index_of(range.begin);
  const Address view = views_[i].load(std::memory_order_acquire);
  if (view == 0) return {};
  const Address begin = view + (range.begin - granules_.at(i).begin);
  return {begin, begin + range.bytes()};
}

void SecondViews::show(Range range) const {
  if (!used_) {
    hide_unseen(range, false);
    return;
  }
  granules_.for_each(range, [this](std::size_t, Range part) {
    if (of(part).empty()) hide_unseen(part, false);
  });
}

std::optional<int> SecondViews::advise(Range range, int advice, const ProgramMarks& marks) {
  switch (advice) {
    case MADV_DONTNEED:  // the kernel would leave it its contents
    case MADV_DONTNEED_LOCKED:
      clear(range, marks);
      return marks.any(Mark::replaced, range) ? std::nullopt : std::optional(0);
    case MADV_DOFORK:  // children would share it, but for the program's own mappings over it
      marks.for_each_run(Mark::replaced, range, [](Range run) { hide_unseen(run, false); });
      return 0;
    case MADV_FREE:  // the kernel would refuse it
      return 0;
    case MADV_REMOVE:  // the kernel would carry it out, under a registration too
    case MADV_WIPEONFORK:
      return EINVAL;
    default:
      return std::nullopt;
  }
}

/// Writes zeros to what lies in the range and is the heap's, whatever the program did to its rights.
void SecondViews::clear(Range range, const ProgramMarks& marks) {
  granules_.for_each(range, [&](std::size_t, Range part) {
    marks.for_each_gap(Mark::replaced, part, [this](Range kept) {
      clear_view(of(kept));
      cleared_.fetch_add(kept.bytes(), std::memory_order_relaxed);
    });
  });
}

void clear_view(Range view) { std::memset(reinterpret_cast<void*>(view.begin), 0, view.bytes()); }

}  // namespace pinion
