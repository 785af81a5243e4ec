// The lease path: the two calls that every front makes for a transfer, acquire() and release(). It asks an
// ordered list of lease sources: first the arena, then the registry. A lease goes back to where it is
// counted: with its thread (counted_closing.h), or in its region.
//
// Owns the sources, what they share, and the parameters of the run that every transfer reads. acquire(),
// try_acquire(), release(), undo() and the parts' functions may be called by any thread while the run lasts,
// outside of hooks. release_after_run() may be called at any time. The object is never freed: threads may be
// inside it when the run ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <vector>

#include "lease/arena_source.h"
#include "lease/engine_options.h"
#include "lease/own_registrations.h"
#include "lease/peer_holds.h"
#include "lease/registry_source.h"
#include "retention/retention_options.h"

namespace pinion {

class LeasePath {
 public:
  LeasePath(const Options& options, bool spends_modelled_time, DomainTable& domains, ArenaLeases& arena,
            MemoryWatch& watch, RunCounters& counters, HelperBell& bell);

  /// The running engine's lease path, or null. One load: fronts ask this first.
  static LeasePath* running() { return running_.load(std::memory_order_acquire); }

  /// Leases `request` for a transfer. `call`: a CallPoint, or a function that returns one, which is called
  /// where the use leaves a record. False only with Refusal::report; then skip the release.
  /// Returns the reason of a refusal in `error`, when given.
  template <class Call = CallPoint>
  bool acquire(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
               Transfer& transfer, Refusal refusal = Refusal::charge, Error* error = nullptr) {
    return arena_source_.lease(thread, domain, request, access, transfer) ||
           registry_.acquire(thread, domain, call, request, access, transfer, refusal, error);
  }
  /// Leases memory that is registered already; else false, without effect.
  template <class Call = CallPoint>
  bool try_acquire(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
                   Transfer& transfer) {
    return arena_source_.try_lease(thread, domain, request, access, transfer) ||
           registry_.try_acquire(thread, domain, call, request, access, transfer);
  }
  void release(ThreadContext& thread, Transfer& transfer);
  /// release(), in line for leases by RegistrySource::acquire_quickly().
  [[gnu::always_inline]] void release_quickly(ThreadContext& thread, Transfer& transfer) {
    if (!transfer.unrecorded) [[unlikely]]
      return release(thread, transfer);
    registry_.end_unrecorded(thread, transfer);
  }
  /// Releases a lease, which leaves no record, of `leased` bytes of which fewer were used; 0: it was no use.
  void release_shortened(ThreadContext& thread, Transfer& transfer, std::uint64_t leased,
                         std::uint64_t used) {
    transfer.counted_at != 0 ? closing_.release(thread, transfer)
                             : registry_.release_shortened(thread, transfer, leased, used);
  }
  /// Cancels a lease, and any registration made for it, unless other leases are out.
  void undo(ThreadContext& thread, Transfer& transfer) {
    transfer.counted_at != 0 ? closing_.release(thread, transfer) : registry_.undo(thread, transfer);
  }
  /// For a lease that outlived the run, or came into a forked child (where this does nothing).
  void release_after_run(Transfer& transfer);

  // ---- the parts ----

  ArenaSource& arena_source() { return arena_source_; }
  RegistrySource& registry_source() { return registry_; }
  ArenaLeases& arena() { return arena_; }
  CountedClosing& counted_closing() { return closing_; }
  ThreadRetirement& retirement() { return retirement_; }
  PeerHolds& peer_holds() { return holds_; }
  OwnRegistrations& own_registrations() { return own_; }
  BounceCharge& bounce_charge() { return bounce_; }
  DomainTable& domains() const { return domains_.table(); }
  Budget& budget() const { return domains().budget(); }

  // ---- the run ----

  /// The trail that hits in the domain leave.
  HitTrail trail_of_hits(const KeptDomain& kept) const;

  const Options& options() const { return options_; }
  /// False for retention observe.
  bool registers() const { return traits_of(options_.retention).registers; }
  /// Smallest transfer that needs registration, in bytes.
  std::uint64_t threshold() const { return threshold_; }
  /// Most bytes, of whole pages, that a domain's device registers in one region: fronts lease longer ranges
  /// in parts.
  std::size_t most_in_a_region(int number) const { return domains_.domain(number).most_in_a_region(); }
  /// Whether a domain has been short of memory: then a lease keeps no more than its transfer needs.
  bool is_pressed(int number) const { return domains_.domain(number).pressed(); }
  /// Libraries register below; MPI calls now pass on without acquiring.
  bool acts_below() const { return acts_below_.load(std::memory_order_relaxed); }
  /// Whether a transfer is waiting for a registration at the moment.
  bool transfers_wait() const { return steps_.transfers_wait(); }
  /// Makes regions go with their leases from now on, and fronts keep and stage nothing.
  void stop() { retirement_.fork_gate().close_for_good(); }
  bool stopped() const { return retirement_.stopped(); }
  /// The process that the run began in.
  pid_t process() const { return process_; }
  /// The run is over; a thread may still be inside this retention, which is therefore never freed.
  void outlive(std::unique_ptr<Retention> retention) { past_.push_back(std::move(retention)); }

 private:
  friend class Engine;
  /// A slot that is about to be published.
  void know(const DomainSlot& slot);

  static std::atomic<LeasePath*> running_;

  // Every transfer reads these; they are written seldom.
  alignas(64) const std::uint64_t threshold_;
  std::atomic<bool> acts_below_;
  KnownDomains domains_;
  UseTrail trail_;
  ThreadRetirement retirement_;
  BounceCharge bounce_;
  ArenaLeases& arena_;
  CountedClosing closing_;
  AcquireBySteps steps_;
  ArenaSource arena_source_;
  RegistrySource registry_;
  PeerHolds holds_;
  OwnRegistrations own_;

  const Options& options_;
  const pid_t process_;
  std::vector<std::unique_ptr<Retention>> past_;
};

}  // namespace pinion
