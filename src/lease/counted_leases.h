// Leases that each thread counts for itself, in a place that the region names (Region::shared). In the
// region's word they would all change one line in turn. Two kinds of regions have places: those for which
// several threads contend, and segments of the arena.
//
// Owns the places: the region of each, under one lease of this object. One hit in many is looked at. Where
// those of a region come from another thread each time, it gets a place. That is closed when its memory
// changes or a larger region replaces it, when it rests or retention would let it go, when memory is short,
// before a fork, and with its domain. A segment has a place until it is doomed. When the leases of threads
// are back too, this object returns its own, and the region is one like any other.
//
// Threads take such leases without a lock (lease.h). All here is ordinary code of any thread, under one
// mutex; look() is the helper's. On systems without membarrier segments alone have places: their leases are
// counted by locked instructions there.
//
// PROTOCOL. As in lease_count.h, with the region's place in the part of its doom: taking counts first, and
// then looks whether the region still has the place; returning counts first, and then looks, too. Closing
// takes the place away, makes one fence of all threads, and sums up then. So a change of a count is in the
// sum, or its thread sees the end of the place, and ends what was closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "lease/domain_table.h"
#include "lease/fork_gate.h"
#include "lease/lease_count.h"
#include "lease/thread_context.h"

namespace pinion {

constexpr int kAllDomains = -1;

class CountedLeases {
 public:
  /// `has_arena`: there may be segments. `shares`: regions stay when a release leaves them idle.
  CountedLeases(KnownDomains& domains, const ForkGate& fork_gate, bool has_arena, bool shares);

  /// Leases are counted by locked instructions: the system lacks fences.
  bool is_ordered() const { return ordered_; }

  // ---- opening ----

  /// Looks at a hit of the thread, which has a lease: perhaps the region gets a place.
  void note_hit(ThreadContext& thread, int domain, Region& region) {
    if (shares_) note_shareable_hit(thread, domain, region);
  }
  /// Gives a segment a place, and takes over the caller's lease of it. False: there is none, or it has one.
  bool adopt(int domain, Region& segment);

  // ---- closing; end_closed() must follow ----

  /// Counts the uses of shared regions (Region::uses), and closes the places that are to go.
  void look(Time now);
  /// Closes the places of a domain's shared regions, or of kAllDomains'.
  void close(int domain);

  /// Returns the leases of closed places, by return_lease(domain, RegionRef). Whether other leases of the
  /// region are out, only its word shows.
  template <class ReturnLease>
  void end_closed(ReturnLease&& return_lease) {
    if (opens_.load(std::memory_order_acquire) == 0) return;
    for (Open over; take_over(over);) return_lease(over.domain, over.region);
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

  void note_shareable_hit(ThreadContext& thread, int domain, Region& region);
  void share(int domain, Region& region);
  bool may_share(int domain, const Region& region) const;
  /// A free place of these gets the region, which is under lease. False: none is free.
  bool open(std::size_t begin, std::size_t end, int domain, Region& region) REQUIRES(mutex_);
  /// Takes a closed place whose leases are back; false: there is none.
  bool take_over(Open& over);
  static void close(Open& open);

  KnownDomains& domains_;
  const ForkGate& fork_gate_;
  const bool ordered_;
  const bool shares_;
  std::atomic<int> opens_{0};  ///< places that are not free

  Mutex mutex_;
  std::vector<Open> places_ GUARDED_BY(mutex_);  ///< up to the last one that was ever used
};

}  // namespace pinion
