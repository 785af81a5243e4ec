// Regions that application threads let go: at a release or a registration after which retention claims some,
// when memory has gone under a lease, before a fork, and when memory or a limit is needed elsewhere.
//
// Owns the gate of forks, which makes regions go with their leases, and the leases that threads count for
// themselves, which keep regions from going. Ordinary code of any thread; the
// functions call the device, and hold signals meanwhile.
#pragma once

#include <cstdint>

#include "lease/fork_gate.h"
#include "lease/known_domains.h"
#include "lease/shared_leases.h"
#include "lease/use_trail.h"

namespace pinion {

class ThreadRetirement {
 public:
  /// `on_threads`: the retention decides on application threads.
  ThreadRetirement(KnownDomains& domains, UseTrail& trail, bool on_threads)
      : on_threads_(on_threads),
        domains_(domains),
        trail_(trail),
        shared_(domains, fork_gate_, !on_threads) {}

  ForkGate& fork_gate() { return fork_gate_; }
  SharedLeases& shared() { return shared_; }

  /// The process was asked to keep nothing.
  bool stopped() const { return fork_gate_.is_closed_for_good(); }
  /// Whether a region that a release leaves idle may have to go.
  bool follows_releases() const { return on_threads_ || fork_gate_.is_closed(); }
  /// A release has left the region idle: lets the regions go that retention claims for that, or this one for
  /// a fork.
  void after_release(ThreadContext& thread, int domain, RegionRef idle);
  /// Lets the regions go that retention claims after a registration.
  void after_registration(ThreadContext& thread, int domain);

  /// Returns the leases of shared regions that were closed. False: there was none whose leases are back.
  /// `thread`: null for the helper, in a passage of the gate.
  bool end_shared(ThreadContext* thread);
  /// Closes the regions that threads share, so that unused ones are idle. False: none became ordinary.
  bool unshare(ThreadContext& thread, int domain);

  /// Lets this region go, if it is idle.
  void retire(ThreadContext& thread, int domain, RegionRef ref);
  /// Deregisters a region that was claimed.
  void retire_claimed(ThreadContext& thread, int domain, Region* region);
  /// Lets the idle doomed regions of a domain go.
  void reap(ThreadContext& thread, int domain);
  /// Lets the idle regions of a domain go that overlap the range, and the doomed ones.
  void let_go_in(ThreadContext& thread, int domain, Range range);
  /// Lets idle regions go, in all domains.
  void let_idle_go(ThreadContext& thread);
  /// Claims regions of all domains, so that so many bytes and one region more are within the limits, and lets
  /// them go. False: there are none.
  bool retire_for(ThreadContext& thread, std::uint64_t bytes);

  /// Counts and logs the deregistration of a region that goes for this thread's work.
  void note(ThreadContext& thread, int domain, const DeviceCall& call);

 private:
  const bool on_threads_;
  ForkGate fork_gate_;
  KnownDomains& domains_;
  UseTrail& trail_;
  SharedLeases shared_;
};

}  // namespace pinion
