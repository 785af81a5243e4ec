// The regions of a domain that were doomed: those that are unused and wait for their deregistration, and
// those in use, whose holders should let go.
//
// Any thread, hooks included, adds regions; it takes no lock and allocates nothing. A region's word decides
// which caller may add it (region_word.h). next() is for the slow lock, take_recalls() for one caller at a
// time.
#pragma once

#include <atomic>
#include <vector>

#include "registry/region.h"
#include "registry/region_stack.h"

namespace pinion {

class DoomedRegions {
 public:
  /// Adds a doomed and unused region.
  [[gnu::noinline, gnu::cold]] void add_unused(Region* region) {
    if (region->word.claim_reaping()) unused_.push(region);
  }
  /// Adds a region that was doomed in use.
  void add_used(Region* region) {
    if (region->word.claim_recall()) used_.push(region);
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
      if (!region->word.load().used()) add_unused(region);
    }
  }
  /// Takes the regions that were doomed in use since the last call, as far as they are still in use.
  std::vector<RegionRef> take_recalls() {
    std::vector<RegionRef> recalls;
    for (Region* region = used_.take(); region;) {
      Region* const next = region->next_recalled;
      const auto word = region->word.unclaim_recall();
      // The slot may hold another region by now.
      if (word.registered() && word.doomed() && word.used()) recalls.push_back({region, word.generation()});
      region = next;
    }
    return recalls;
  }

 private:
  RegionStack<Region, &Region::next_reaped> unused_;
  std::atomic<Region*> taken_{nullptr};  ///< off `unused_`, linked; written under the slow lock
  RegionStack<Region, &Region::next_recalled> used_;
};

}  // namespace pinion
