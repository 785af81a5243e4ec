// The regions of a domain that were doomed, are unused, and wait for their deregistration.
//
// Any thread, hooks included, adds regions; it takes no lock and allocates nothing. A region's word decides
// which caller may add it (region_word.h). next() is for the slow lock.
#pragma once

#include <atomic>

#include "registry/region.h"
#include "registry/region_stack.h"

namespace pinion {

class DoomedRegions {
 public:
  /// Adds a doomed and unused region.
  [[gnu::noinline, gnu::cold]] void add(Region* region) {
    if (region->word.claim_reaping()) unused_.push(region);
  }
  /// Regions wait for their deregistration.
  bool waiting() const { return !unused_.empty() || taken_.load(std::memory_order_relaxed); }

  /// Takes the next region that waits, and makes it `retiring`; null: there is none.
  Region* next() {
    for (;;) {
      Region* region = taken_.load(std::memory_order_relaxed);
      if (!region) region = unused_.take();
      if (!region) return nullptr;
      taken_.store(region->next_reaped, std::memory_order_relaxed);
      region->word.unclaim_reaping();
      if (region->word.try_retire()) return region;
      // A straggler's count may have come and gone in between, finding the region still queued.
      if (!region->word.load().used()) add(region);
    }
  }

 private:
  RegionStack<Region, &Region::next_reaped> unused_;
  std::atomic<Region*> taken_{nullptr};  ///< off `unused_`, linked; written under the slow lock
};

}  // namespace pinion
