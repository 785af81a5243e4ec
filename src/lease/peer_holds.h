// Registrations for peers: a region stays registered by a hold of the registry's, while peers may reach it.
// It is no transfer: retention learns nothing from it, and the log has events of its own.
//
// Owns nothing. Ordinary code of any thread.
#pragma once

#include "lease/registry_source.h"

namespace pinion {

/// A region that stays registered for peers.
struct PeerHold {
  RegionRef region;
  Range pages;
  int domain = 0;
};

class PeerHolds {
 public:
  PeerHolds(KnownDomains& domains, MemoryWatch& watch, UseTrail& trail, ThreadRetirement& retirement,
            AcquireBySteps& steps)
      : domains_(domains), watch_(watch), trail_(trail), retirement_(retirement), steps_(steps) {}

  /// Registers whole pages for peers, where needed, and holds them. EBUSY: the memory is changing.
  Error begin(ThreadContext& thread, int domain, Range pages, Access access, PeerHold& hold);
  /// The region is deregistered at once, unless leases are out.
  void end(ThreadContext& thread, const PeerHold& hold);

 private:
  KnownDomains& domains_;
  MemoryWatch& watch_;
  UseTrail& trail_;
  ThreadRetirement& retirement_;
  AcquireBySteps& steps_;
};

}  // namespace pinion
