#include "registry/region_table.h"

#include "base/assert.h"

namespace pinion {

bool RegionTable::reserve() {
  hints_.fit(index_.size() + 1);
  return slab_.reserve(1) && index_.reserve();
}

Region* RegionTable::take(Range range, std::uint32_t leases) {
  Region* region = slab_.take();
  PINION_ASSERT(region && region->word.load().state() == RegionState::free && !region->place.indexed);
  region->word.begin_registering(leases);
  region->begin.store(range.begin, std::memory_order_relaxed);
  region->end.store(range.end, std::memory_order_release);  // read by the index's validated walk
  return region;
}

void RegionTable::insert(Region* region, Ticks now) {
  const Range range = region->range();
  region->place.indexed = true;
  if (pressed()) {
    victims_.recall(region, now);
    victims_.add(region);
  }
  pages_.add<kReserved>(range);
  region_bytes_ += range.bytes();
  count_.fetch_add(1, std::memory_order_relaxed);
  index_.insert(region);
}

void RegionTable::hide(Region* region) {
  if (!region->place.indexed) return;
  index_.erase(region);
  victims_.remove(region);
  region->place.indexed = false;
}

std::size_t RegionTable::count_registered(Range pages) {
  const std::size_t grown = pages_.add<kRegistered>(pages);
  registered_bytes_.store(pages_.bytes<kRegistered>(), std::memory_order_relaxed);
  return grown;
}

std::size_t RegionTable::count_deregistered(Range pages) {
  const std::size_t left = pages_.remove<kRegistered>(pages);
  registered_bytes_.store(pages_.bytes<kRegistered>(), std::memory_order_relaxed);
  return left;
}

std::size_t RegionTable::unreserve(Range pages) {
  PINION_ASSERT(count() > 0 && region_bytes_ >= pages.bytes());
  region_bytes_ -= pages.bytes();
  count_.fetch_sub(1, std::memory_order_relaxed);
  return pages_.remove<kReserved>(pages);
}

void RegionTable::put(Region* region) {
  PINION_ASSERT(region->word.load().state() == RegionState::free && !region->place.indexed);
  if (!region->word.at_last_generation()) slab_.put(region);
}

void RegionTable::feel_pressure() {
  if (pressed()) return;
  pressed_.store(true, std::memory_order_relaxed);
  index_.for_each([&](Region* region) {
    victims_.add(region);
    return true;
  });
}

void RegionTable::restart() {
  PINION_ASSERT(count() == 0);
  pressed_.store(false, std::memory_order_relaxed);
  has_been_short_.store(false, std::memory_order_relaxed);
  victims_ = Victims();
}

}  // namespace pinion
