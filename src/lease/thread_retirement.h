// Registrations that have to go. Regions that application threads let go: at a release or a registration
// after which retention claims some, when memory has gone under a lease, before a fork, when memory or a
// limit is needed elsewhere. And the registrations whose leases threads count for themselves
// (counted_leases.h): segments of the arena, and regions that threads share. These are closed first; once
// those leases are back, segments are deregistered, and shared regions are ordinary ones.
//
// Owns the gate of forks, which makes regions go with their leases, and the shared regions. Ordinary code of
// any thread; the functions call the device, and hold signals meanwhile.
#pragma once

#include <cstdint>

#include "lease/arena_leases.h"
#include "lease/counted_leases.h"
#include "lease/domain_table.h"
#include "lease/fork_gate.h"
#include "lease/transfer.h"
#include "lease/use_trail.h"

namespace pinion {

class ThreadRetirement {
 public:
  /// `on_threads`: the retention decides on application threads.
  ThreadRetirement(KnownDomains& domains, UseTrail& trail, ArenaLeases& arena, bool on_threads)
      : on_threads_(on_threads),
        domains_(domains),
        trail_(trail),
        arena_(arena),
        counted_(domains, fork_gate_, arena.exists(), !on_threads) {}

  ForkGate& fork_gate() { return fork_gate_; }
  CountedLeases& counted() { return counted_; }

  /// The process was asked to keep nothing.
  bool stopped() const { return fork_gate_.is_closed_for_good(); }
  /// Whether a region that a release leaves idle may have to go.
  bool follows_releases() const { return on_threads_ || fork_gate_.is_closed(); }
  /// A release has left the region idle: lets the regions go that retention claims for that, or this one for
  /// a fork.
  void after_release(ThreadContext& thread, int domain, RegionRef idle);
  /// Lets the regions go that retention claims after a registration.
  void after_registration(ThreadContext& thread, int domain);

  // ---- what threads count for themselves ----

  /// Returns a counted lease. True: what it counted for is closed, and retire_closed() must follow.
  [[nodiscard, gnu::always_inline]] static bool give_back(ThreadContext& thread, const Transfer& transfer) {
    const std::uint16_t at = transfer.counted_at;
    thread.counted().at[at - 1u].give_back();
    const Region& region = *transfer.served_by;
    return region.word.load().doomed() || region.shared.at.load(std::memory_order_acquire) != at;
  }
  /// For a counted lease that outlived the run.
  void release_after_run(Transfer& transfer);
  /// Gives up the registrations of what is closed, as far as its leases are back: the helper deregisters
  /// them. For the helper, in a passage of the fork gate.
  void end_closed();
  /// Closes the regions that are to be shared no more, and ends what is closed. As end_closed().
  void look(Time now);
  /// Deregisters them at once.
  void retire_closed(ThreadContext& thread);
  /// Closes all that a domain has, which is being emptied.
  void close(int domain);
  /// Closes what nobody uses at the moment: shared regions, which are ordinary ones then, and segments until
  /// they hold so many bytes, which may be opened again after `rest`. False: there is none.
  bool close_idle(ThreadContext& thread, std::uint64_t bytes, Duration rest);
  /// Returns the leases of places that were closed. False: there was none whose leases are back. `thread`:
  /// null for the helper, in a passage of the gate.
  bool end_places(ThreadContext* thread);
  /// Closes the regions that threads share, so that unused ones are idle. False: none became ordinary.
  bool unshare(ThreadContext& thread, int domain);

  // ---- ordinary regions ----

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
  /// LeaseRun states what it does.
  bool make_room(ThreadContext& thread);
  void begin_own(ThreadContext& thread, std::uint64_t bytes);
  void end_own(std::uint64_t bytes);
  /// Counts and logs the deregistration of a region that goes for this thread's work.
  void note(ThreadContext& thread, int domain, const DeviceCall& call);

 private:
  /// Claims regions of all domains, so that so many bytes and one region more are within the limits, and lets
  /// them go. False: there are none.
  bool retire_for(ThreadContext& thread, std::uint64_t bytes);

  const bool on_threads_;
  ForkGate fork_gate_;
  KnownDomains& domains_;
  UseTrail& trail_;
  ArenaLeases& arena_;
  CountedLeases counted_;
};

}  // namespace pinion
