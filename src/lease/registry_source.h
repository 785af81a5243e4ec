// The last source of leases (lease_path.h): the registry, where each request finds or makes a registration of
// its own. All that an application thread does in between hit and miss.
//
// A use leaves a record, by which retention learns and which the log keeps. A hit leaves none where nobody
// needs it: the domain's HitTrail says so, or its region is settled (retention/buffers.h); nor where
// the thread's ring is full, which would refuse it. Then no time is taken and no call site is looked up.
//
// Owns the parameters of hits. Any thread, outside of hooks.
#pragma once

#include <concepts>

#include "lease/acquire_by_steps.h"
#include "lease/bounce_charge.h"
#include "lease/transfer.h"
#include "monitor/userfault.h"

namespace pinion {

/// Whether so much memory can be: more than the machine has is a mistake of the caller's.
bool is_possible(Range request);

class RegistrySource {
 public:
  RegistrySource(KnownDomains& domains, MemoryWatch& watch, UseTrail& trail, ThreadRetirement& retirement,
                 BounceCharge& bounce, AcquireBySteps& steps);

  /// Leases the range. `call`: as in LeasePath. False only with Refusal::report; then skip the release.
  /// Returns the reason of a refusal in `error`, when given.
  template <class Call = CallPoint>
  bool acquire(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
               Transfer& transfer, Refusal refusal = Refusal::charge, Error* error = nullptr) {
    return try_acquire(thread, domain, call, request, access, transfer) ||
           acquire_slow(thread, domain, point_of(call), request, access, transfer, refusal, error);
  }
  /// Leases the range if it is registered already; else false, without effect.
  template <class Call = CallPoint>
  bool try_acquire(ThreadContext& thread, int domain, Call&& call, Range request, Access access,
                   Transfer& transfer) {
    if (domains_.observes(domain)) [[unlikely]]
      return false;
    see_events();
    if (try_shared(thread, domain, request, access, transfer)) return true;
    // Every 128th hit of a thread is measured: reading the counter each time would cost as much as a hit.
    const Ticks asked = is_sampled(thread, domain) ? ticks_now() : 0;
    Region* const region = domains_.domain(domain).try_hit(request, access, thread.recent);
    if (region == nullptr) return false;
    if (leaves_record(thread, domain, *region))
      recorded(thread, domain, point_of(call), region, request, access, transfer);
    else
      unrecorded(thread, domain, region, request, transfer);
    transfer.bookkeeping = asked != 0 ? ticks_now() - asked : 0;
    if (asked != 0 && transfer.unrecorded) [[unlikely]]
      retirement_.shared().note_hit(thread, domain, *region);
    return true;
  }

  // ---- the shortest ways, free of calls ----

  enum class Quick {
    done,
    shared,  ///< nothing has happened: acquire_shared() may serve it
    other,   ///< nothing has happened: the ordinary call is to be made
    rest,    ///< its second half is to follow: end_refused(), or end_release()
  };
  /// try_acquire() for a hit that leaves no record. After end_refused() the ordinary call is to be made.
  /// `domain` is read anew where it is needed, which takes fewer registers than keeping it.
  [[gnu::always_inline]] Quick acquire_quickly(ThreadContext& thread, const int& domain, Range request,
                                               Access access, Transfer& transfer) {
    const RegionHint& hint = thread.recent.of(request.begin);
    if (!domains_.domain(domain).is_hinted(hint, request, access)) return Quick::other;
    Region* const region = hint.region;
    if (userfaultfd_handling()) return Quick::other;
    const bool is_learnt = is_learnt_from(domain, *region);
    if (!is_learnt && region->shared.at.load(std::memory_order_relaxed) != 0) [[unlikely]]
      return Quick::shared;
    // The ring comes last, as it counts what it refuses.
    if (is_sampled(thread, domain) || (is_learnt && !thread.ring.refuses())) return Quick::other;
    if (!region->word.count_in(hint.proof)) [[unlikely]]
      return Quick::rest;
    unrecorded(thread, domain, region, request, transfer);
    transfer.bookkeeping = 0;
    return Quick::done;
  }
  /// After Quick::shared. False: the ordinary call is to be made.
  [[gnu::always_inline]] bool acquire_shared(ThreadContext& thread, int domain, Range request,
                                             Transfer& transfer) {
    const RegionHint& hint = thread.recent.of(request.begin);
    const std::uint16_t at = SharedLeases::try_lease(thread, *hint.region, hint.proof);
    if (at == 0) [[unlikely]]
      return end_share(thread);
    unrecorded(thread, domain, hint.region, request, transfer);
    transfer.unrecorded = false;
    transfer.counted_at = at;
    return true;
  }
  void end_refused(ThreadContext& thread, int domain, Address begin) {
    domains_.domain(domain).release(thread.recent.of(begin).region);
  }
  /// The first half of end_unrecorded().
  [[gnu::always_inline]] Quick release_quickly(Transfer& transfer) {
    if (transfer.bookkeeping != 0 || leaves_time(transfer.domain)) return Quick::other;
    Region* const region = transfer.served_by;
    region->count_uses();
    return give_back(region, transfer) ? Quick::done : Quick::rest;
  }
  /// After a release that has left the region idle. `thread`: null where the system gives no memory for its
  /// context; then what is claimed goes later.
  void end_release(ThreadContext* thread, Transfer& transfer);

  // ---- all others ----

  /// Leaves the record of a lease that lasts beyond the run, up to now. A full ring goes without.
  void note_open(ThreadContext& thread, const Transfer& transfer);

  /// Records a use that its front serves without a registration; release() ends it.
  void observe(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer);
  void release(ThreadContext& thread, Transfer& transfer) {
    transfer.unrecorded ? end_unrecorded(thread, transfer) : release_recorded(thread, transfer);
  }
  /// release() of an unrecorded use.
  [[gnu::always_inline]] void end_unrecorded(ThreadContext& thread, Transfer& transfer) {
    transfer.active = false;
    const Quick quick = release_quickly(transfer);
    if (quick == Quick::rest) return end_release(&thread, transfer);
    if (quick == Quick::other) [[unlikely]]
      release_unrecorded(thread, transfer);
  }
  /// Releases an unrecorded lease of `leased` bytes of which fewer were used; 0: it was no use.
  void release_shortened(ThreadContext& thread, Transfer& transfer, std::uint64_t leased, std::uint64_t used);
  /// Cancels a lease, and any registration made for it, unless other leases are out.
  void undo(ThreadContext& thread, Transfer& transfer);

 private:
  static constexpr std::uint64_t kSampled = 128;

  template <class Call>
  static decltype(auto) point_of(Call&& call) {
    if constexpr (std::convertible_to<Call, const CallPoint&>)
      return static_cast<const CallPoint&>(call);
    else
      return call();
  }
  /// The kernel lets the unmapping thread go on before the reader of its event has doomed the regions
  /// (userfault.h).
  static void see_events() {
    if (userfaultfd_handling()) [[unlikely]]
      wait_for_userfaultfd();
  }
  static bool is_sampled(const ThreadContext& thread, int domain) {
    return thread.counters[domain].hits.get() % kSampled == kSampled - 1;
  }
  bool is_learnt_from(int domain, const Region& region) const {
    return domains_.trail_of_hits(domain) == HitTrail::record &&
           !region.settled.load(std::memory_order_relaxed);
  }
  bool leaves_record(ThreadContext& thread, int domain, const Region& region) const {
    return is_learnt_from(domain, region) && !thread.ring.refuses();
  }

  /// Leases a region that threads share, which leaves no record.
  bool try_shared(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer) {
    const RegionHint& hint = thread.recent.of(request.begin);
    return domains_.domain(domain).is_hinted(hint, request, access) &&
           !is_learnt_from(domain, *hint.region) &&
           hint.region->shared.at.load(std::memory_order_relaxed) != 0 &&
           acquire_shared(thread, domain, request, transfer);
  }
  /// False: the region is shared no more.
  bool end_share(ThreadContext& thread);
  bool leaves_time(int domain) const {
    return domains_.trail_of_hits(domain) == HitTrail::time || domains_.domain(domain).pressed();
  }

  [[gnu::always_inline]] static void unrecorded(ThreadContext& thread, const int& domain, Region* region,
                                                Range request, Transfer& transfer) {
    transfer.active = true;
    transfer.unrecorded = true;
    transfer.counted_at = 0;
    transfer.domain = domain;
    transfer.served_by = region;
    ThreadCounters& counters = thread.counters[domain];
    counters.acquired_bytes.add(request.bytes());
    counters.hits.add(1);
  }
  void recorded(ThreadContext& thread, int domain, const CallPoint& call, Region* region, Range request,
                Access access, Transfer& transfer);
  bool acquire_slow(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                    Transfer& transfer, Refusal refusal, Error* error);
  void begin_transfer(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                      Transfer& transfer);
  bool by_steps(ThreadContext& thread, Range request, Access access, Transfer& transfer, Refusal refusal,
                Error* error);
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
  /// A release has left the region idle.
  void left_idle(ThreadContext& thread, int domain, const RegionRef& ref, RegionWord::Released released) {
    if (released == RegionWord::Released::idle_doomed) [[unlikely]]
      return left_doomed(thread, domain, *ref.region);
    if (retirement_.follows_releases()) [[unlikely]]
      retirement_.after_release(thread, domain, ref);
  }
  void left_doomed(ThreadContext& thread, int domain, const Region& region);
  void measured(ThreadContext& thread, const Transfer& transfer, int domain, Ticks released);
  static void note_observed(ThreadContext& thread, Transfer& transfer);
  bool refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error);

  KnownDomains& domains_;
  MemoryWatch& watch_;
  UseTrail& trail_;
  ThreadRetirement& retirement_;
  BounceCharge& bounce_;
  AcquireBySteps& steps_;
  const Ticks plausible_hit_;  ///< its bookkeeping takes no longer
};

}  // namespace pinion
