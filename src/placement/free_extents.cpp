#include "placement/free_extents.h"

#include "base/assert.h"

namespace pinion {

void FreeExtents::add(Extent& extent) {
  add_alone(extent);
  list(extent);
}

void FreeExtents::add_rest(const Extent& of, Address begin, std::uint32_t chunks) {
  Extent& rest = pool_.take();
  rest.begin = begin;
  rest.chunks = chunks;
  rest.area = of.area;
  add_alone(rest);
  if (of.unmerged) list(rest);
  rest.area->place(rest);
}

void FreeExtents::add_alone(Extent& extent) {
  extent.state = Extent::State::free;
  extent.mapped = extent.aside = false;
  extent.area_number = extent.area->number;
  extent.area->free_bytes += extent.bytes();
  tree_.insert(extent);
}

void FreeExtents::remove(Extent& extent) {
  PINION_ASSERT(extent.state == Extent::State::free);
  extent.area->free_bytes -= extent.bytes();
  tree_.erase(extent);
  unlist(extent);
}

void FreeExtents::resize(Extent& extent, Address begin, std::uint32_t chunks) {
  extent.area->free_bytes += (std::size_t{chunks} - extent.chunks) * kChunk;
  tree_.resize(extent, begin, chunks);
}

Extent* FreeExtents::fit(std::uint32_t chunks, std::size_t alignment, Address& begin) const {
  constexpr unsigned kLooks = 64;
  const auto aligned = [&](const Extent& extent) {
    return (extent.begin + alignment - 1) & ~(alignment - 1);
  };
  const auto fits = [&](const Extent& extent) {
    return aligned(extent) + std::size_t{chunks} * kChunk <= extent.end();
  };
  Extent* found = tree_.first_fit(chunks, kLooks, fits);
  if (found == nullptr)
    found = tree_.first_fit(chunks + static_cast<std::uint32_t>((alignment + kChunk - 1) / kChunk) - 1);
  if (found != nullptr) begin = aligned(*found);
  return found;
}

/// One of two free neighbours is always in the list.
bool FreeExtents::merge() {
  const bool any = unmerged_ != nullptr;
  while (unmerged_ != nullptr) {
    Extent* extent = unmerged_;
    unlist(*extent);
    const Area& area = *extent->area;
    for (Extent* lower = area.before(*extent); lower != nullptr && lower->state == Extent::State::free;
         lower = area.before(*extent))
      extent = &join(*lower, *extent);
    for (Extent* upper = area.after(*extent); upper != nullptr && upper->state == Extent::State::free;
         upper = area.after(*extent))
      join(*extent, *upper);
    unlist(*extent);
  }
  return any;
}

Extent& FreeExtents::join(Extent& lower, Extent& upper) {
  const std::uint32_t chunks = upper.chunks;
  remove(upper);
  pool_.put(upper);
  resize(lower, lower.begin, lower.chunks + chunks);
  lower.area->place(lower);
  return lower;
}

void FreeExtents::list(Extent& extent) {
  extent.unmerged = true;
  extent.newer = nullptr;
  extent.older = unmerged_;
  if (unmerged_ != nullptr) unmerged_->newer = &extent;
  unmerged_ = &extent;
}

void FreeExtents::unlist(Extent& extent) {
  if (!extent.unmerged) return;
  (extent.newer != nullptr ? extent.newer->older : unmerged_) = extent.older;
  if (extent.older != nullptr) extent.older->newer = extent.newer;
  extent.unmerged = false;
}

}  // namespace pinion
