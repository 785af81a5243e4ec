// The door to leases: lease() and release(), which every front calls for a transfer, and the rest that fronts
// ask of the cache. What a request meets is decided on this page:
//
//   in the arena?   a segment's registration serves it (arena_leases.h); the thread counts the lease itself
//   hinted?         the thread's hint names its region (registry/region_leases.h); else the index does, or a
//                   registration is made (acquire_by_steps.h)
//   shared?         threads contend for the region: each counts its leases for itself (counted_leases.h)
//   recorded?       retention learns from the use, or the log has it. Else the use is a count: no time is
//                   taken, and no call site is looked up. So it is where the domain's HitTrail says so, where
//                   the region is settled (retention/buffers.h), and where the thread's ring is full
//   refused?        the lease was counted in vain: end_refused() undoes that, and the ordinary call follows
//
// Owns the parts that serve leases, and the parameters of the run that every transfer reads. Any thread,
// while the run lasts, outside of hooks. release_after_run() may be called at any time. The object is never
// freed: threads may be inside it when the run ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <concepts>
#include <memory>
#include <vector>

#include "lease/acquire_by_steps.h"
#include "lease/engine_options.h"
#include "lease/transfer.h"
#include "monitor/userfault.h"
#include "retention/retention_options.h"

namespace pinion {

namespace hits {

template <class Call>
decltype(auto) point_of(Call&& call) {
  if constexpr (std::convertible_to<Call, const CallPoint&>)
    return static_cast<const CallPoint&>(call);
  else
    return call();
}

/// The kernel lets the unmapping thread go on before the reader of its event has doomed the regions
/// (userfault.h).
inline void see_events() {
  if (userfaultfd_handling()) [[unlikely]]
    wait_for_userfaultfd();
}

/// Every 128th hit of a thread is measured: reading the counter each time would cost as much as a hit.
inline bool is_sampled(const ThreadContext& thread, int domain) {
  constexpr std::uint64_t kSampled = 128;
  return thread.counters[domain].hits.get() % kSampled == kSampled - 1;
}

/// Completes a lease that leaves no record.
[[gnu::always_inline]] inline void serve(ThreadContext& thread, const int& domain, Region* region,
                                         Range request, Transfer& transfer) {
  transfer.active = true;
  transfer.domain = domain;
  transfer.served_by = region;
  ThreadCounters& counters = thread.counters[domain];
  counters.acquired_bytes.add(request.bytes());
  counters.hits.add(1);
}

}  // namespace hits

/// The run that leases are of, and what fronts ask of it beside leases.
class LeaseRun {
 public:
  const Options& options() const { return options_; }
  /// The process that the run began in.
  pid_t process() const { return process_; }
  /// False for retention observe.
  bool registers() const { return traits_of(options_.retention).registers; }
  /// Smallest transfer that needs registration, in bytes.
  std::uint64_t threshold() const { return threshold_; }
  /// Libraries register below; MPI calls now pass on without leasing.
  bool acts_below() const { return acts_below_.load(std::memory_order_relaxed); }
  DomainTable& domains() const { return domains_.table(); }
  Budget& budget() const { return domains().budget(); }
  /// Most bytes, of whole pages, that a domain's device registers in one region: fronts lease longer ranges
  /// in parts.
  std::size_t most_in_a_region(int number) const { return domains_.domain(number).most_in_a_region(); }
  /// Whether a domain has been short of memory: then a lease keeps no more than its transfer needs.
  bool is_pressed(int number) const { return domains_.domain(number).pressed(); }
  /// The trail that hits in the domain leave.
  HitTrail trail_of_hits(const KeptDomain& kept) const;
  /// Bytes per ns of a copy; found by the first caller (copy_speed.h).
  double copy_speed();
  /// Whether a transfer is waiting for a registration at the moment.
  bool transfers_wait() const { return steps_.transfers_wait(); }
  /// Makes regions go with their leases from now on, and fronts keep and stage nothing.
  void stop() { retirement_.fork_gate().close_for_good(); }
  bool stopped() const { return retirement_.stopped(); }
  /// The run is over; a thread may still be inside this retention, which is therefore never freed.
  void outlive(std::unique_ptr<Retention> retention) { past_.push_back(std::move(retention)); }

  // ---- peers, and the program's own registrations ----

  /// Registers whole pages for peers, where needed, and holds them. EBUSY: the memory is changing.
  Error hold(ThreadContext& thread, int domain, Range pages, Access access, PeerHold& hold) {
    return steps_.hold(thread, domain, pages, access, hold);
  }
  /// The region is deregistered at once, unless leases are out.
  void end_hold(ThreadContext& thread, const PeerHold& hold) { steps_.end_hold(thread, hold); }
  /// Counts a registration that the program makes without Pinion against the limits, before it is made until
  /// it has ended: idle regions go for it, as far as there are any.
  void begin_own(ThreadContext& thread, std::uint64_t bytes) { retirement_.begin_own(thread, bytes); }
  void end_own(std::uint64_t bytes) { retirement_.end_own(bytes); }
  /// Lets the idle regions of a domain go that overlap the range, and the doomed ones.
  void let_go_in(ThreadContext& thread, int domain, Range range) {
    retirement_.let_go_in(thread, domain, range);
  }
  /// Lets all go that is idle, where the system refuses memory that the program pins itself, and returns when
  /// it is gone. False: nothing is registered.
  bool make_room(ThreadContext& thread) { return retirement_.make_room(thread); }

  // ---- for the helper ----

  /// Looks at what threads count for themselves, and ends what is closed.
  void look(Time now);
  /// Closes all that a domain has, which is being emptied.
  void close(int domain);
  ForkGate& fork_gate() { return retirement_.fork_gate(); }
  ArenaFigures arena_figures() { return arena_.figures(); }

  // ---- segments of the arena ----

  /// Whether segments are registered with rights of peers, whose key opens all of a segment to them.
  bool segments_serve_peers() const { return includes(arena_.rights(), Access::all); }
  /// Whether segments may be registered for the domain at the moment.
  bool may_open_segments(int domain) const { return steps_.may_open_segments(domain); }
  /// Registers a segment before a request needs it; the registration is `expected` to take so long. False:
  /// refused. For the helper.
  bool prepare_segment(ThreadContext& thread, int domain, Range segment, Duration expected);

 protected:
  LeaseRun(const Options& options, DomainTable& domains, ArenaLeases& arena, MemoryWatch& watch,
           RunCounters& counters, HelperBell& bell);

  /// A slot that is about to be published.
  void know(const DomainSlot& slot) { domains_.add(slot, trail_of_hits(slot.kept)); }

  // Every transfer reads these; they are written seldom.
  alignas(64) const std::uint64_t threshold_;
  std::atomic<bool> acts_below_;
  KnownDomains domains_;
  UseTrail trail_;
  ArenaLeases& arena_;
  ThreadRetirement retirement_;
  AcquireBySteps steps_;
  MemoryWatch& watch_;

  const Options& options_;
  const pid_t process_;
  std::atomic<double> copy_speed_{0};
  std::vector<std::unique_ptr<Retention>> past_;
};

class LeasePath : public LeaseRun {
 public:
  LeasePath(const Options& options, bool spends_modelled_time, DomainTable& domains, ArenaLeases& arena,
            MemoryWatch& watch, RunCounters& counters, HelperBell& bell);

  /// The running engine's, or null. One load: fronts ask this first.
  static LeasePath* running() { return running_.load(std::memory_order_acquire); }

  // ---- leases ----

  /// Leases `request` for a transfer. `call`: a CallPoint, or a function that returns one, which is called
  /// where the use leaves a record. False only with Refusal::report; then skip the release.
  /// Returns the reason of a refusal in `error`, when given.
  template <class Call = CallPoint>
  bool lease(ThreadContext& thread, int domain, Call&& call, Range request, Access access, Transfer& transfer,
             Refusal refusal = Refusal::charge, Error* error = nullptr) {
    return lease_in_segment(thread, domain, request, access, transfer) ||
           lease_alone(thread, domain, call, request, access, transfer, refusal, error);
  }
  /// Leases memory that is registered already; else false, without effect.
  template <class Call = CallPoint>
  bool try_lease(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
                 Transfer& transfer) {
    return (arena_.holds(request.begin) && in_segment(thread, domain, request, access, transfer, false)) ||
           try_alone(thread, domain, call, request, access, transfer);
  }
  /// lease() where a segment of the arena serves the request, which is registered first where that may be;
  /// else false, without effect.
  bool lease_in_segment(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer) {
    return arena_.holds(request.begin) && in_segment(thread, domain, request, access, transfer, true);
  }
  /// lease() by a registration for the request, beside the arena's.
  template <class Call = CallPoint>
  bool lease_alone(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
                   Transfer& transfer, Refusal refusal = Refusal::charge, Error* error = nullptr) {
    return try_alone(thread, domain, call, request, access, transfer) ||
           lease_slowly(thread, domain, hits::point_of(call), request, access, transfer, refusal, error);
  }
  void release(ThreadContext& thread, Transfer& transfer);
  /// Releases a lease, which leaves no record, of `leased` bytes of which fewer were used; 0: it was no use.
  void release_shortened(ThreadContext& thread, Transfer& transfer, std::uint64_t leased, std::uint64_t used);
  /// Cancels a lease, and any registration made for it, unless other leases are out.
  void undo(ThreadContext& thread, Transfer& transfer);
  /// For a lease that outlived the run, or came into a forked child (where this does nothing).
  void release_after_run(Transfer& transfer);
  /// Records a use that its front serves without a registration; release() ends it.
  void observe(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer);
  /// Leaves the record of a lease that lasts beyond the run, up to now. A full ring goes without.
  void note_open(ThreadContext& thread, const Transfer& transfer);

  // ---- the same as far as it is free of calls ----

  enum class Quick {
    done,
    counted,  ///< nothing has happened: lease_counted(), or release_counted(), is to be called
    other,    ///< nothing has happened: lease(), or release(), is to be called
    rest,     ///< its second half is to follow: end_refused(), and then lease(); or end_release()
  };
  /// try_lease() of a use that leaves no record. `domain` is read anew where it is needed, which takes fewer
  /// registers than keeping it.
  [[gnu::always_inline]] Quick lease_quickly(ThreadContext& thread, const int& domain, Range request,
                                             Access access, Transfer& transfer) {
    if (arena_.holds(request.begin)) [[unlikely]]
      return Quick::counted;
    return quickly_alone(thread, domain, request, access, transfer);
  }
  /// After Quick::counted: done, other or rest.
  [[gnu::always_inline]] Quick lease_counted(ThreadContext& thread, const int& domain, Range request,
                                             Access access, Transfer& transfer) {
    if (arena_.holds(request.begin)) [[likely]]
      return quickly_in_segment(thread, domain, request, access, transfer);
    return quickly_shared(thread, domain, request, transfer);
  }
  void end_refused(ThreadContext& thread, int domain, Address begin, Transfer& transfer);
  /// release() of a use that leaves no record.
  [[gnu::always_inline]] Quick release_quickly(Transfer& transfer) {
    if (!transfer.unrecorded) return transfer.counted_at != 0 ? Quick::counted : Quick::other;
    if (transfer.bookkeeping != 0 || leaves_time(transfer.domain)) return Quick::other;
    Region* const region = transfer.served_by;
    region->count_uses();
    return give_back(region, transfer) ? Quick::done : Quick::rest;
  }
  /// After Quick::counted: done or rest.
  [[gnu::always_inline]] static Quick release_counted(ThreadContext& thread, const Transfer& transfer) {
    return ThreadRetirement::give_back(thread, transfer) ? Quick::rest : Quick::done;
  }
  /// `thread`: null where the system gives no memory for its context; then what is claimed goes later.
  void end_release(ThreadContext* thread, Transfer& transfer);
  /// release(), in line where its use left no record.
  [[gnu::always_inline]] void release_in_line(ThreadContext& thread, Transfer& transfer) {
    if (!transfer.unrecorded) [[unlikely]]
      return release(thread, transfer);
    transfer.active = false;
    const Quick quick = release_quickly(transfer);
    if (quick == Quick::rest) return end_release(&thread, transfer);
    if (quick == Quick::other) [[unlikely]]
      release_unrecorded(thread, transfer);
  }

 private:
  friend class Engine;

  // ---- hits ----

  [[gnu::always_inline]] Quick quickly_in_segment(ThreadContext& thread, const int& domain, Range request,
                                                  Access access, Transfer& transfer) {
    std::uint64_t proof = 0;
    Region* const segment = arena_.segment_at(domain, request.begin, access, proof);
    const std::uint16_t at = segment != nullptr ? segment->shared.at.load(std::memory_order_relaxed) : 0;
    if (at == 0) [[unlikely]]
      return Quick::other;
    LeaseCount& count = thread.counted().at[at - 1u];
    transfer.counted_at = at;
    if (!count.count_in(segment->word, proof, retirement_.counted().is_ordered()) ||
        !segment->range().contains(request)) [[unlikely]]
      return Quick::rest;
    LeaseCount::add(count.bytes, request.bytes());
    transfer.active = true;
    transfer.unrecorded = false;
    transfer.served_by = segment;
    return Quick::done;
  }
  [[gnu::always_inline]] static Quick quickly_shared(ThreadContext& thread, const int& domain, Range request,
                                                     Transfer& transfer) {
    const RegionHint& hint = thread.recent.of(request.begin);
    const std::uint16_t at = hint.region->shared.at.load(std::memory_order_relaxed);
    if (at == 0) return Quick::other;
    transfer.counted_at = at;
    LeaseCount& count = thread.counted().at[at - 1u];
    if (!count.count_in_at(hint.region->shared.at, at, hint.region->word, hint.proof)) [[unlikely]]
      return Quick::rest;
    hits::serve(thread, domain, hint.region, request, transfer);
    transfer.unrecorded = false;
    return Quick::done;
  }
  [[gnu::always_inline]] Quick quickly_alone(ThreadContext& thread, const int& domain, Range request,
                                             Access access, Transfer& transfer) {
    const RegionHint& hint = thread.recent.of(request.begin);
    if (!domains_.domain(domain).is_hinted(hint, request, access)) return Quick::other;
    Region* const region = hint.region;
    if (userfaultfd_handling()) return Quick::other;
    const bool is_learnt = is_learnt_from(domain, *region);
    if (!is_learnt && is_shared(*region)) [[unlikely]]
      return Quick::counted;
    // The ring comes last, as it counts what it refuses.
    if (hits::is_sampled(thread, domain) || (is_learnt && !thread.ring.refuses())) return Quick::other;
    if (!region->word.count_in(hint.proof)) [[unlikely]] {
      transfer.counted_at = 0;
      return Quick::rest;
    }
    hits::serve(thread, domain, region, request, transfer);
    transfer.unrecorded = true;
    transfer.counted_at = 0;
    transfer.bookkeeping = 0;
    return Quick::done;
  }
  template <class Call>
  bool try_alone(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
                 Transfer& transfer) {
    if (domains_.observes(domain)) [[unlikely]]
      return false;
    hits::see_events();
    Quick quick = quickly_alone(thread, domain, request, access, transfer);
    if (quick == Quick::counted) [[unlikely]]
      quick = quickly_shared(thread, domain, request, transfer);
    if (quick == Quick::done) return true;
    if (quick == Quick::rest) [[unlikely]]
      end_refused(thread, domain, request.begin, transfer);
    const Ticks asked = hits::is_sampled(thread, domain) ? ticks_now() : 0;
    Region* const region = domains_.domain(domain).try_hit(request, access, thread.recent);
    if (region == nullptr) return false;
    if (is_learnt_from(domain, *region) && !thread.ring.refuses()) {
      recorded(thread, domain, hits::point_of(call), region, request, access, transfer);
    } else {
      hits::serve(thread, domain, region, request, transfer);
      transfer.unrecorded = true;
      transfer.counted_at = 0;
    }
    transfer.bookkeeping = asked != 0 ? ticks_now() - asked : 0;
    if (asked != 0 && transfer.unrecorded) [[unlikely]]
      retirement_.counted().note_hit(thread, domain, *region);
    return true;
  }

  static bool is_shared(const Region& region) {
    return region.shared.at.load(std::memory_order_relaxed) - 1u < kSharedPlaces;
  }
  bool is_learnt_from(int domain, const Region& region) const {
    return domains_.trail_of_hits(domain) == HitTrail::record &&
           !region.settled.load(std::memory_order_relaxed);
  }
  bool leaves_time(int domain) const {
    return domains_.trail_of_hits(domain) == HitTrail::time || domains_.domain(domain).pressed();
  }
  static void recorded(ThreadContext& thread, int domain, const CallPoint& call, Region* region,
                       Range request, Access access, Transfer& transfer);

  // ---- out of line ----

  /// `opens`: registers the segment first, where that may be.
  bool in_segment(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer,
                  bool opens);
  bool lease_slowly(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                    Transfer& transfer, Refusal refusal, Error* error);
  bool by_steps(ThreadContext& thread, Range request, Access access, Transfer& transfer, Refusal refusal,
                Error* error);
  bool refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error);
  /// Charges a transfer whose memory cannot be registered, and which the layer below makes without a bounce
  /// buffer: going without registration is never free.
  void charge_copy(ThreadContext& thread, Record& transfer, const Error& why);

  // ---- releases ----

  void release_recorded(ThreadContext& thread, Transfer& transfer);
  void release_unrecorded(ThreadContext& thread, Transfer& transfer);
  void release_unused(ThreadContext& thread, Transfer& transfer);
  /// Returns an unrecorded lease. False: end_release() is to follow.
  [[nodiscard, gnu::always_inline]] bool give_back(Region* region, Transfer& transfer) {
    RegionWord::Value before;
    const auto released = region->word.release(before);
    // The gate of forks is asked after the release (fork_gate.h).
    if (released == RegionWord::Released::in_use ||
        (released == RegionWord::Released::idle && !retirement_.follows_releases())) [[likely]]
      return true;
    transfer.record.set_region({region, before.generation()});
    return false;
  }
  void left_idle(ThreadContext& thread, int domain, const RegionRef& ref, RegionWord::Released released);
  void measured(ThreadContext& thread, const Transfer& transfer, int domain, Ticks released);

  static std::atomic<LeasePath*> running_;

  const Ticks plausible_hit_;        ///< its bookkeeping takes no longer
  const bool spends_modelled_time_;  ///< it delays threads; else it is charged in the books
  std::atomic<bool> refusal_reported_{false};
};

}  // namespace pinion
