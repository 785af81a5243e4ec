#include "placement/free_extents.h"

#include "base/assert.h"

namespace pinion {

Extent& FreeExtents::add(Extent& extent) {
  const Area& area = *extent.area;
  Extent* whole = &extent;
  if (Extent* const lower = area.before(extent); lower != nullptr && lower->state == Extent::State::free) {
    resize(*lower, lower->begin, lower->chunks + extent.chunks);
    pool_.put(extent);
    whole = lower;
  } else {
    add_alone(extent);
  }
  if (Extent* const upper = area.after(*whole); upper != nullptr && upper->state == Extent::State::free) {
    const std::uint32_t chunks = upper->chunks;
    remove(*upper);
    pool_.put(*upper);
    resize(*whole, whole->begin, whole->chunks + chunks);
  }
  area.place(*whole);
  return *whole;
}

void FreeExtents::add_rest(const Extent& of, Address begin, std::uint32_t chunks) {
  Extent& rest = pool_.take();
  rest.begin = begin;
  rest.chunks = chunks;
  rest.area = of.area;
  add_alone(rest);
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
}

void FreeExtents::resize(Extent& extent, Address begin, std::uint32_t chunks) {
  extent.area->free_bytes += (std::size_t{chunks} - extent.chunks) * kChunk;
  tree_.erase(extent);
  extent.begin = begin;
  extent.chunks = chunks;
  tree_.insert(extent);
}

Extent* FreeExtents::fit(std::uint32_t chunks, std::size_t alignment, Address& begin) const {
  constexpr unsigned kLooks = 64;
  const auto aligned = [&](const Extent& extent) {
    return (extent.begin + alignment - 1) & ~(alignment - 1);
  };
  const auto fits = [&](const Extent& extent) {
    return aligned(extent) + std::size_t{chunks} * kChunk <= extent.end();
  };
  Extent* found = tree_.best_fit(chunks, kLooks, fits);
  if (found == nullptr)
    found = tree_.best_fit(chunks + static_cast<std::uint32_t>((alignment + kChunk - 1) / kChunk) - 1);
  if (found != nullptr) begin = aligned(*found);
  return found;
}

}  // namespace pinion
