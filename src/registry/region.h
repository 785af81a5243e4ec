// A region: one registration of a domain, from its begin to its return to the slab.
// Memory of regions stays mapped (slab.h), so a pointer to one may be dereferenced for ever. Its fields
// hold under a lease or a hold, or under the domain's slow lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/access.h"
#include "base/clock.h"
#include "base/range.h"
#include "device/device.h"
#include "registry/region_word.h"
#include "registry/transitions.h"

namespace pinion {

/// Where its domain's table has a region.
struct RegionPlace {
  std::uint32_t heap_slot = 0;  ///< in that heap
  std::uint8_t heap = 0;        ///< in the order of victims (region_heap.h); 0: in none
  bool indexed = false;
  bool trimmed = false;  ///< claimed by Domain::begin_trim(), until it is retired
};

/// How several threads use a region (lease/counted_leases.h).
struct Sharing {
  std::atomic<std::uint16_t> at{0};  ///< the place where each thread counts its leases; 0: the word counts
  // Of hits that are looked at: the last one's thread, by the end of its number, and how many in a row came
  // from another thread than the one before.
  std::atomic<std::uint8_t> seen_thread{0};
  std::atomic<std::uint8_t> thread_changes{0};
};

struct alignas(64) Region {
  RegionWord word;
  // Read by lock-free lookups before they hold a lease, hence atomic; written by the registering thread
  // before commit.
  std::atomic<Address> begin{0};
  std::atomic<Address> end{0};
  std::atomic<const void*> owner{nullptr};  ///< of a permanent region (AcquireRequest::owner)
  std::atomic<Access> access{Access::read};
  std::atomic<bool> memory_changed{false};  ///< why it is doomed: set by hooks, before that
  Sharing shared;
  /// The helper decides nothing about the region before it has rested: uses leave a count alone
  /// (retention/buffers.h).
  std::atomic<bool> settled{false};
  /// Serves requests within it too, not just for all of it (DeviceCapabilities::hides_from_children).
  std::atomic<bool> serves_parts{true};
  std::atomic<std::uint32_t> entries{0};  ///< translation entries; pages, where the device counts none
  Transitions transitions;                ///< changes when `registering` ends; waiters sleep on it

  // Unordered hints. The helper's frequent writes go to another line than the one that a hit
  // needs.
  /// Uses that left no record. Concurrent counts may be lost: it shows that there was a use, and about how
  /// many.
  std::atomic<std::uint32_t> uses{0};
  std::atomic<Ticks> last_use{0};  ///< by leaseholders, and by the helper for uses that leave no time
  // For choosing victims (victims.h).
  alignas(64) std::atomic<Time> next_use{0};  ///< by Domain::expect(): predicted; 0: not known
  /// The typical time from one use to the next, by leaseholders, once memory is short.
  std::atomic<Ticks> interval{0};

  // Guarded by the domain's slow lock.
  Time overdue = kNever;  ///< while registering ahead: from then on a thread that waits registers by itself
  RegistrationKey key;
  Region* next_free = nullptr;
  RegionPlace place;

  // Written by the one that claimed the region for that list (region_word.h).
  Region* next_reaped = nullptr;

  Range range() const { return {begin.load(std::memory_order_relaxed), end.load(std::memory_order_relaxed)}; }
  std::uint32_t generation() const { return word.load().generation(); }
  bool covers(Range request) const {
    return serves_parts.load(std::memory_order_relaxed) ? range().contains(request)
                                                        : range() == request.to_pages();
  }
  bool serves(Range request, Access rights) const {
    return covers(request) && includes(access.load(std::memory_order_relaxed), rights);
  }

  /// Notes uses that leave no record; for leaseholders.
  void count_uses(std::uint32_t n = 1) {
    uses.store(uses.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  /// Notes a lease from `begin` to `end`; for leaseholders. Concurrent updates may be lost.
  void used(Ticks begin, Ticks end) {
    const Ticks before = last_use.load(std::memory_order_relaxed);
    last_use.store(end, std::memory_order_relaxed);
    if (begin <= before) return;
    const Ticks known = interval.load(std::memory_order_relaxed);
    interval.store(known ? known / 2 + (begin - before) / 2 : begin - before, std::memory_order_relaxed);
  }
};

static_assert(sizeof(Region) == 192, "the memory that a registration costs (registry-and-monitor.md)");

/// A region as it was at one time: survives the recycling of the slot.
struct RegionRef {
  Region* region = nullptr;
  std::uint32_t generation = 0;
  bool current() const { return region && region->generation() == generation; }
};

}  // namespace pinion
