// Leases of regions for which several threads contend. In the region's word they would all change one line in
// turn; here each thread counts its own, in a place that the region names (Region::shared).
//
// Owns the places: the region of each, under one lease of this object. One hit in many is looked at. Where
// those of a region come from another thread each time, it gets a place. Its place is closed when its memory
// changes or a larger region replaces it, when it rests or retention would let it go, when memory is short,
// before a fork, and with its domain. When the leases of threads are back too, this object returns its own,
// and the region is one like any other.
//
// A thread takes such a lease without a lock (lease.h). All here is ordinary code of any thread, under one
// mutex; look() is the helper's. Systems without membarrier have no places.
//
// PROTOCOL. As in lease_count.h, with the region's place in the part of its doom: taking counts first, and
// then looks whether the region still has the place; returning counts first, and then looks, too. Closing
// takes the place away, makes one fence of all threads, and sums up then. So a change of a count is in the
// sum, or its thread sees the end of the place, and ends what was closed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "lease/domain_table.h"
#include "lease/fork_gate.h"
#include "lease/lease_count.h"
#include "lease/thread_context.h"

namespace pinion {

constexpr int kAllDomains = -1;

class SharedLeases {
 public:
  /// `allowed`: regions stay when a release leaves them idle.
  SharedLeases(KnownDomains& domains, const ForkGate& fork_gate, bool allowed);

  // ---- requests ----

  /// Looks at a hit of the thread, which has a lease: perhaps the region gets a place.
  void note_hit(ThreadContext& thread, int domain, Region& region) {
    if (allowed_) note_allowed_hit(thread, domain, region);
  }

  // ---- closing; end_closed() must follow ----

  /// Counts the uses of shared regions (Region::uses), and closes the places that are to go.
  void look(Time now);
  /// Closes the places of a domain, or kAllDomains.
  void close(int domain);

  /// Returns the leases of closed places, by return_lease(domain, RegionRef). Whether other leases of the
  /// region are out, only its word shows.
  template <class ReturnLease>
  void end_closed(ReturnLease&& return_lease) {
    if (opens_.load(std::memory_order_acquire) == 0) return;
    std::array<Open, kSharedPlaces> over;
    const std::size_t count = take_over(over);
    for (std::size_t i = 0; i < count; ++i) return_lease(over[i].domain, over[i].region);
  }

 private:
  struct Open {
    RegionRef region;  ///< null: the place is free
    int domain = 0;
    std::uint64_t uses = 0;  ///< of the place, up to the last look
    Time used = 0;           ///< the last look that found a use
    bool closing = false;
    bool fenced = false;  ///< since then
  };

  void note_allowed_hit(ThreadContext& thread, int domain, Region& region);
  void open(int domain, Region& region);
  bool may_share(int domain, const Region& region) const;
  std::size_t take_over(std::array<Open, kSharedPlaces>& over);
  static void close(Open& open);

  KnownDomains& domains_;
  const ForkGate& fork_gate_;
  const bool allowed_;
  std::atomic<int> opens_{0};  ///< places that are not free

  Mutex mutex_;
  std::array<Open, kSharedPlaces> places_ GUARDED_BY(mutex_);
};

}  // namespace pinion
