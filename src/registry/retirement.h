// The way out of a domain: a region is claimed, deregistered by the claimer outside of the lock, and gone.
// Where the device refuses, the region stays counted, and is due again after a while.
//
//   claimed ──> finish(): gone, its slot is free
//          └──> fail(): stays counted ──> next_due() claims it again, after 10 ms to a second
//
// Owns the regions whose deregistration has failed, and counts those that are claimed. leaving() and due()
// are for any thread, without a lock. All else is guarded by the domain's slow lock.
#pragma once

#include <atomic>
#include <vector>

#include "registry/admission.h"
#include "registry/domain_context.h"
#include "registry/doomed_regions.h"
#include "registry/region_table.h"

namespace pinion {

class Retirement {
 public:
  Retirement(DomainContext& context, RegionTable& table, DoomedRegions& doomed, Admission& admission)
      : context_(context), table_(table), doomed_(doomed), admission_(admission) {}

  /// The number of regions that are claimed at the moment.
  std::size_t leaving() const { return leaving_.load(std::memory_order_acquire); }
  /// True if next_due() may find a region.
  bool due() const {
    return doomed_.waiting() || retry_due_.load(std::memory_order_relaxed) != kNeverRetried;
  }

  /// Claims the region if it is idle and not permanent (or doomed and unused).
  bool claim(Region* region);
  /// Claims a region whose word is `retiring` already.
  void claimed(Region* region);
  /// Claims the next doomed and unused region, or one whose deregistration is due to be tried again; null:
  /// there is none.
  Region* next_due();
  /// Ends the claimed region, which is deregistered.
  void finish(Region* region);
  /// Keeps the claimed region, which the device has refused to deregister.
  void fail(Region* region);
  /// Makes the regions of fail() due at once.
  void retry_now();
  /// Begins anew with an empty domain.
  void restart() { retry_wait_ = 0; }

 private:
  static constexpr Time kNeverRetried = INT64_MAX;

  /// Wakes the threads that wait for the region's room.
  void departed(Range pages);

  DomainContext& context_;
  RegionTable& table_;
  DoomedRegions& doomed_;
  Admission& admission_;
  std::atomic<std::size_t> leaving_{0};
  std::vector<Region*> unretired_;  ///< claimed once; their deregistration has failed
  std::atomic<Time> retry_due_{kNeverRetried};
  Duration retry_wait_ = 0;
};

}  // namespace pinion
