// The order in which regions are let go when registered memory has to shrink: every ordinary region of a
// domain, by the time at which it is expected to be used next. Guarded by the domain's slow lock; hits leave
// it alone.
//
//   - Regions without a predicted next use go first: retention expects none, or prediction is off. Among them
//     those used once only go first, the longest unused before others. So a scan spares the regions that are
//     used again. Then goes the region expected latest by the interval between its recent uses. A region that
//     has been unused for longer than its interval counts by that time. So a part of a loop that does not fit
//     stays, where LRU and SIEVE would let go just the region that comes next. Intervals are remembered
//     beyond eviction. All is weighted by the bytes that are freed for the time to register them again. The
//     choice is the best of 32 taken at random (of all, where there are no more): O(1), and nothing is kept
//     in order at each use.
//   - Then go those with a predicted next use (Domain::expect), the farthest first: O(log n).
//   - Under retention lru the least recently used goes: O(log n) amortized over the uses.
//
// Regions under lease, and those that peers hold, are passed over. Permanent ones are left out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "registry/region.h"
#include "registry/region_heap.h"

namespace pinion {

class Victims {
 public:
  enum class Order { expected, least_recently_used };
  void set_order(Order order) { order_ = order; }

  /// Adds a region that is registered, or about to be. Permanent ones are left out.
  void add(Region* region);
  /// Takes the region out, if it is here.
  void remove(Region* region);
  /// Moves a region whose Region::next_use has changed.
  void expect(Region* region);

  /// Takes out the region to go first of those that are idle; null: none is.
  Region* take(Ticks now);
  /// Adds a region from take() again, which stays after all.
  void put_back(Region* region) { add(region); }

  /// Remembers the uses of a region that goes, for when its memory is registered again.
  void remember(const Region* region);
  /// Hands the uses of the last region of its range, if these are remembered, to `region`, which is used now.
  void recall(Region* region, Ticks now) const;

  /// Sets the constant part of a registration's time, in pages that take as long (b / a of t = a * pages +
  /// b).
  void set_call_pages(double pages) { call_pages_ = pages; }
  /// The time to register the region again, in pages that take as long.
  double pages_to_register(const Region* region) const {
    return static_cast<double>(region->range().pages()) + call_pages_;
  }

 private:
  /// The uses of a region that was let go.
  struct Past {
    Range range{};
    Ticks last_use = 0;
    Ticks interval = 0;
  };
  static constexpr std::size_t kSample = 32;
  static constexpr std::size_t kPasts = 8192, kPastsOfARange = 4;

  static bool idle(const Region* region);
  static std::size_t bucket(Range range);
  template <class IsFirst>
  Region* take_first_idle(RegionHeap& heap, IsFirst&& is_first);
  Region* take_least_recently_used();
  Region* take_sampled(Ticks now);
  Region* take_expected_last();

  Order order_ = Order::expected;
  double call_pages_ = 65;   // UCX's model of a NIC: 16 us, 246 ns
  RegionHeap expected_{1};   ///< by next use, the farthest on top
  RegionHeap others_{2};     ///< by their last use when they came here, or were last looked at
  std::vector<Past> pasts_;  ///< hashed by range, kPastsOfARange places each
  std::vector<Region*> in_use_;
  std::uint64_t random_ = 0x9e3779b97f4a7c15;
};

}  // namespace pinion
