// The part of a lease that locks, waits and calls the device: an acquisition (registry/acquisition.h) that is
// run by blocking, and the books on it. Requests, segments of the arena and holds of peers are acquired so. A
// hold keeps a region registered while peers may reach it: it is no transfer, so retention learns nothing
// from it, and the log has events of its own.
//
// Owns the count of transfers that wait, and whether the user was told of a refused segment. Any thread,
// outside of hooks; signals are held meanwhile.
#pragma once

#include <atomic>

#include "lease/memory_watch.h"
#include "lease/thread_retirement.h"
#include "registry/acquire.h"

namespace pinion {

/// Whether so much memory can be: more than the machine has is a mistake of the caller's.
bool is_possible(Range request);

/// The whole larger pages of a request's memory, for AcquireRequest::large. Empty where the pages are of the
/// system's size, and where a forked child would lack the rest of them: the library refuses parts of
/// hugepages then, as without Pinion (RDMAV_HUGEPAGES_SAFE). The heap copies the blocks in its own hugepages
/// for children.
LargeRange large_pages_to_register(const Device& device, Range pages);

/// A region that stays registered for peers.
struct PeerHold {
  RegionRef region;
  Range pages;
  int domain = 0;
};

class AcquireBySteps {
 public:
  AcquireBySteps(KnownDomains& domains, MemoryWatch& watch, ArenaLeases& arena, UseTrail& trail,
                 ThreadRetirement& retirement)
      : domains_(domains), watch_(watch), arena_(arena), trail_(trail), retirement_(retirement) {}

  /// Leases the pages for the record's transfer, whose domain is known. Refused: without region.
  AcquireResult run(ThreadContext& thread, AcquireRequest request, Record& record);
  /// Whether a transfer is waiting for a registration at the moment.
  bool transfers_wait() const { return waiting_.load(std::memory_order_relaxed) != 0; }

  /// Whether segments may be registered for the domain at the moment.
  bool may_open_segments(int domain) const;
  /// Registers the segment of the request, which may_open_segments() allows. `expected`: of a registration
  /// ahead of requests; kNever: the request needs it. False: it stays unregistered. It may be open, for all
  /// that this thread knows, if true.
  bool register_segment(ThreadContext& thread, int domain, Range request, Duration expected);

  /// LeaseRun states what it does.
  Error hold(ThreadContext& thread, int domain, Range pages, Access access, PeerHold& hold);
  void end_hold(ThreadContext& thread, const PeerHold& hold);

 private:
  KnownDomains& domains_;
  MemoryWatch& watch_;
  ArenaLeases& arena_;
  UseTrail& trail_;
  ThreadRetirement& retirement_;
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<bool> segment_reported_{false};
};

}  // namespace pinion
