// Who goes first when registered memory has to shrink: every region of a domain, ordered by when it is
// expected to be used next. Guarded by the domain's slow lock, as all of it; a hit writes nothing here.
//
//   - Regions that retention predicts a next use of (Domain::expect): the farthest goes first. O(log n).
//   - Before them, those that it predicts none of, because it expects none or because nobody predicts. First
//     of these goes what was used once only (a scan passes without driving out what is used again), the
//     longest unused; then what is expected latest by the interval between its recent uses, and what has been
//     unused longer than that interval, by as long as it has: of a loop that does not fit, a part stays,
//     where LRU and SIEVE would always have let go just what comes next. How often a region came is
//     remembered beyond its eviction. All is weighted by the bytes that are freed for the time to register
//     them again. The best of 32 taken at random (of all, where there are no more): O(1), and nothing to keep
//     in order at each use.
//   - Under retention lru the least recently used: O(log n) amortized over the uses.
//
// Regions under lease, and those that peers hold, are passed over. Permanent ones are not among them.
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

  /// A region that is registered, or about to be. Permanent ones are left out.
  void add(Region* region);
  /// Harmless where it is not here.
  void remove(Region* region);
  /// Its Region::next_use has changed.
  void expect(Region* region);

  /// Takes out the region to go first of those that are idle; null: none is.
  Region* take(Ticks now);
  /// What take() gave and was not let go after all.
  void put_back(Region* region) { add(region); }

  /// It was let go to make room: if its memory is registered again, its interval is known.
  void remember(const Region* region);
  /// What is remembered of a region for just this range is now known of `region`, which is used now.
  void recall(Region* region, Ticks now) const;

  /// The constant part of a registration's time, in pages that take as long (b / a of t = a * pages + b).
  void set_call_pages(double pages) { call_pages_ = pages; }

 private:
  /// What was registered once.
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
  RegionHeap expected_;      ///< by next use, the farthest on top
  RegionHeap others_;        ///< by their last use when they came here, or were last looked at
  std::vector<Past> pasts_;  ///< hashed by range, kPastsOfARange places each
  std::vector<Region*> in_use_;
  std::uint64_t random_ = 0x9e3779b97f4a7c15;
};

}  // namespace pinion
