#include "registry/domain.h"

#include <algorithm>

#include "base/assert.h"

namespace pinion {

Domain::Domain(Device& device, Budget& budget, const Brackets& brackets, Clock& clock,
               RegisteredListener* listener)
    : context_{&device, &budget, brackets, clock, listener},
      admission_(context_, table_),
      retirement_(context_, table_, doomed_, admission_),
      eviction_(context_, table_, admission_, retirement_),
      registering_(context_, *this, table_, doomed_, admission_, retirement_, eviction_) {
  const MutexLock lock(slow_);
  take_capabilities();
}

void Domain::reopen(Device& device, Budget& budget) {
  const MutexLock lock(slow_);
  PINION_ASSERT(region_count() == 0);
  context_.device = &device;
  context_.budget = &budget;
  take_capabilities();
  table_.restart();
  retirement_.restart();
  eviction_.restart();
  registering_.restart();
}

void Domain::device_changed() {
  const MutexLock lock(slow_);
  PINION_ASSERT(region_count() == 0);
  take_capabilities();
}

void Domain::take_capabilities() {
  admission_.take_capabilities();
  registers_bytes_.store(admission_.byte_ranges(), std::memory_order_relaxed);
  most_in_a_region_.store(admission_.most_in_a_region(), std::memory_order_relaxed);
}

// ---- the steps of an acquire ----

AcquireStep Domain::begin(Acquire& acquire) {
  acquire.result.over_limit = false;
  std::vector<Region*>& victims = acquire.attempt.victims;
  victims.clear();
  while (Region* doomed = begin_reap()) victims.push_back(doomed);
  if (!victims.empty()) return AcquireStep::deregister;
  const MutexLock lock(slow_);
  return registering_.begin(acquire);
}

AcquireStep Domain::commit(Acquire& acquire, const Registration& registration) {
  const MutexLock lock(slow_);
  return registering_.commit(acquire, registration);
}

void Domain::overtake(const AcquireAttempt& attempt) {
  const MutexLock lock(slow_);
  registering_.overtake(attempt);
}

void Domain::waited_in_vain() {
  const MutexLock lock(slow_);
  registering_.waited_in_vain();
}

// ---- the way out ----

Region* Domain::begin_retire(RegionRef ref) {
  const MutexLock lock(slow_);
  return ref.current() && retirement_.claim(ref.region) ? ref.region : nullptr;
}

void Domain::finish_retire(Region* region) {
  const MutexLock lock(slow_);
  eviction_.retired(region);
  retirement_.finish(region);
}

void Domain::fail_retire(Region* region) {
  const MutexLock lock(slow_);
  retirement_.fail(region);
}

void Domain::retry_retiring() {
  const MutexLock lock(slow_);
  retirement_.retry_now();
}

Region* Domain::begin_reap() {
  if (!retirement_.due()) return nullptr;
  const MutexLock lock(slow_);
  return retirement_.next_due();
}

void Domain::await_leaving(Time until) {
  { const MutexLock lock(slow_); }  // regions are claimed, and counted as leaving, under it
  while (leaving() != 0 && monotonic_now() < until) {
    const std::uint32_t departures = budget().departures().load();
    if (leaving() != 0) budget().departures().wait(departures, until);
  }
}

// ---- memory events ----

std::size_t Domain::doom(Range range, const void* owner) {
  std::size_t waiting = 0;
  table_.for_each_overlap(range, [&](Region* region) {
    if (owner && region->owner.load(std::memory_order_relaxed) == owner) return;
    region->memory_changed.store(true, std::memory_order_relaxed);
    const auto before = region->word.doom();
    if (!before.registered()) return;
    // The leases of a region that threads share are not known here: it may well be unused.
    const bool may_wait = !before.used() || region->shared.at.load(std::memory_order_relaxed) != 0;
    if (may_wait) waiting += region->range().bytes();
    if (!before.used()) doomed_.add(region);
  });
  return waiting;
}

// ---- limits ----

bool Domain::has_room(Range pages) {
  const MutexLock lock(slow_);
  return admission_.fits(pages);
}

bool Domain::within_limits(Range pages) {
  const MutexLock lock(slow_);
  return admission_.within_limits(pages);
}

std::size_t Domain::missing(Range pages) {
  const MutexLock lock(slow_);
  return table_.unreserved(pages);
}

std::vector<Region*> Domain::begin_shrink(std::uint64_t bytes, std::uint64_t regions) {
  const MutexLock lock(slow_);
  return eviction_.to_shrink(bytes, regions);
}

std::vector<Region*> Domain::begin_swap(Range pages, Time use, Time back) {
  const MutexLock lock(slow_);
  return eviction_.for_swap(pages, use, back);
}

std::vector<Region*> Domain::begin_swap(std::uint64_t bytes, Time back) {
  const MutexLock lock(slow_);
  return eviction_.for_swap(bytes, back);
}

Region* Domain::begin_trim(std::uint64_t keep_bytes) {
  if (registered_bytes() <= keep_bytes) return nullptr;
  const MutexLock lock(slow_);
  return eviction_.to_trim(keep_bytes);
}

// ---- the order of victims ----

void Domain::expect(const RegionRef& ref, Time next_use) {
  ref.region->next_use.store(next_use, std::memory_order_relaxed);
  if (!pressed()) return;
  const MutexLock lock(slow_);
  if (ref.current()) table_.victims().expect(ref.region);
}

void Domain::feel_pressure() {
  const MutexLock lock(slow_);
  table_.feel_pressure();
}

void Domain::set_call_pages(double pages) {
  const MutexLock lock(slow_);
  table_.victims().set_call_pages(pages);
}

void Domain::choose_least_recently_used() {
  const MutexLock lock(slow_);
  table_.victims().set_order(Victims::Order::least_recently_used);
}

// ---- figures ----

std::vector<RegionRef> Domain::idle_regions(Range in) {
  const MutexLock lock(slow_);
  std::vector<RegionRef> idle;
  table_.for_each_overlap(in, [&](Region* region) {
    const auto word = region->word.load();
    if (word.idle()) idle.push_back({region, word.generation()});
  });
  std::sort(idle.begin(), idle.end(), [](const RegionRef& a, const RegionRef& b) {
    return a.region->range().begin < b.region->range().begin;
  });
  return idle;
}

std::size_t Domain::own_bytes() {
  const MutexLock lock(slow_);
  return table_.own_bytes();
}

}  // namespace pinion
