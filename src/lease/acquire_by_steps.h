// The part of an acquire that locks, waits and calls the device: an acquisition (registry/acquisition.h) that
// is run by blocking, and the books on it.
//
// Owns the count of transfers that wait. Any thread, outside of hooks; signals are held meanwhile.
#pragma once

#include <atomic>

#include "lease/counted_closing.h"
#include "lease/memory_watch.h"
#include "lease/thread_retirement.h"
#include "registry/acquire.h"

namespace pinion {

class AcquireBySteps {
 public:
  AcquireBySteps(KnownDomains& domains, MemoryWatch& watch, ArenaLeases& arena, CountedClosing& closing,
                 UseTrail& trail, ThreadRetirement& retirement)
      : domains_(domains),
        watch_(watch),
        arena_(arena),
        closing_(closing),
        trail_(trail),
        retirement_(retirement) {}

  /// Leases the pages for the record's transfer, whose domain is known. Refused: without region.
  AcquireResult run(ThreadContext& thread, AcquireRequest request, Record& record);
  /// Whether a transfer is waiting for a registration at the moment.
  bool transfers_wait() const { return waiting_.load(std::memory_order_relaxed) != 0; }

 private:
  KnownDomains& domains_;
  MemoryWatch& watch_;
  ArenaLeases& arena_;
  CountedClosing& closing_;
  UseTrail& trail_;
  ThreadRetirement& retirement_;
  std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace pinion
