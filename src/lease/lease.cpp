#include "lease/lease.h"

#include <unistd.h>

#include "base/warning.h"
#include "device/model/cost_model.h"
#include "lease/copy_speed.h"
#include "lease/node_membership.h"
#include "runlog/format.h"

namespace pinion {

namespace {

// The bookkeeping of a hit with every cache cold takes less.
constexpr Duration kPlausibleHit = 10 * kMicrosecond;

void begin_transfer(ThreadContext& thread, int number, const CallPoint& call, Range request, Access access,
                    Transfer& transfer) {
  ThreadCounters& counters = thread.counters[number];
  transfer.active = true;
  transfer.unrecorded = false;
  transfer.counted_at = 0;
  transfer.bookkeeping = 0;
  // A hit, until it turns out otherwise: records of device calls are made from this one.
  transfer.record = Record{.begin = call.time,
                           .address = request.begin,
                           .site = call.site,
                           .access = access,
                           .bytes = request.bytes(),
                           .call = call.kind,
                           .kind = runlog::EventKind::lease,
                           .domain = static_cast<unsigned>(number),
                           .delayed = counters.delayed_ticks.get(),
                           .peer = call.peer};
  counters.acquired_bytes.add(request.bytes());
}

void note_observed(ThreadContext& thread, Transfer& transfer) {
  transfer.record.outcome = runlog::Outcome::observed;
  thread.counters[transfer.record.domain].observed.add(1);
}

}  // namespace

// ---- the run ----

LeaseRun::LeaseRun(const Options& options, DomainTable& domains, ArenaLeases& arena, MemoryWatch& watch,
                   RunCounters& counters, HelperBell& bell)
    : threshold_(options.threshold),
      acts_below_(options.front == Front::verbs),
      domains_(domains),
      trail_(counters, bell),
      arena_(arena),
      retirement_(domains_, trail_, arena, traits_of(options.retention).decides_on_threads),
      steps_(domains_, watch, arena, trail_, retirement_),
      watch_(watch),
      options_(options),
      process_(::getpid()) {}

HitTrail LeaseRun::trail_of_hits(const KeptDomain& kept) const {
  const RetentionTraits traits = traits_of(options_.retention);
  const bool logged = !options_.log.empty() && !log_is_temporary();
  if (kept.observed || traits.predicts || logged) return HitTrail::record;
  return traits.decides_on_threads && traits.keeps_idle ? HitTrail::time : HitTrail::none;
}

double LeaseRun::copy_speed() {
  double known = copy_speed_.load(std::memory_order_relaxed);
  if (known > 0) return known;
  known = known_copy_speed();
  copy_speed_.store(known, std::memory_order_relaxed);
  return known;
}

void LeaseRun::look(Time now) {
  const ForkGate::Passage passage(fork_gate());
  retirement_.look(now);
}

void LeaseRun::close(int domain) {
  const ForkGate::Passage passage(fork_gate());
  retirement_.close(domain);
}

bool LeaseRun::prepare_segment(ThreadContext& thread, int number, Range segment, Duration expected) {
  const ForkGate::Passage passage(fork_gate());
  const Range first_page{segment.begin, segment.begin + page_size()};
  return !may_open_segments(number) || steps_.register_segment(thread, number, first_page, expected);
}

// ---- leases ----

std::atomic<LeasePath*> LeasePath::running_{nullptr};

LeasePath::LeasePath(const Options& options, bool spends_modelled_time, DomainTable& domains,
                     ArenaLeases& arena, MemoryWatch& watch, RunCounters& counters, HelperBell& bell)
    : LeaseRun(options, domains, arena, watch, counters, bell),
      plausible_hit_(calibration().to_ticks(kPlausibleHit)),
      spends_modelled_time_(spends_modelled_time) {}

void LeasePath::recorded(ThreadContext& thread, int number, const CallPoint& call, Region* region,
                         Range request, Access access, Transfer& transfer) {
  begin_transfer(thread, number, call, request, access, transfer);
  transfer.record.set_region({region, region->generation()});
  thread.counters[number].hits.add(1);
}

void LeasePath::end_refused(ThreadContext& thread, int number, Address begin, Transfer& transfer) {
  if (transfer.counted_at == 0) {
    domains_.domain(number).release(thread.recent.of(begin).region);
    return;
  }
  thread.counted().at[transfer.counted_at - 1u].refuse();
  if (!transfer.in_arena()) retirement_.end_places(&thread);
  transfer.counted_at = 0;
}

bool LeasePath::in_segment(ThreadContext& thread, int number, Range request, Access access,
                           Transfer& transfer, bool opens) {
  const auto take = [&] {
    const Quick quick = quickly_in_segment(thread, number, request, access, transfer);
    if (quick == Quick::rest) end_refused(thread, number, request.begin, transfer);
    return quick == Quick::done;
  };
  if (take()) return true;
  if (!opens || domains_.domain(number).registers_bytes()) return false;
  if (may_open_segments(number) && steps_.register_segment(thread, number, request, kNever) && take())
    return true;
  thread.counters[number].arena_passed.add(1);
  return false;
}

void LeasePath::observe(ThreadContext& thread, int number, const CallPoint& call, Range request,
                        Access access, Transfer& transfer) {
  begin_transfer(thread, number, call, request, access, transfer);
  note_observed(thread, transfer);
}

bool LeasePath::lease_slowly(ThreadContext& thread, int number, const CallPoint& call, Range request,
                             Access access, Transfer& transfer, Refusal refusal, Error* error) {
  begin_transfer(thread, number, call, request, access, transfer);
  if (!is_possible(request)) [[unlikely]]
    return refuse_impossible(thread, transfer, refusal, error);
  if (!domains_.observes(number)) return by_steps(thread, request, access, transfer, refusal, error);
  note_observed(thread, transfer);
  return true;
}

bool LeasePath::by_steps(ThreadContext& thread, Range request, Access access, Transfer& transfer,
                         Refusal refusal, Error* error) {
  const int number = transfer.record.domain;
  ThreadCounters& counters = thread.counters[number];
  Record& record = transfer.record;
  const Range unit = domains_.domain(number).unit_of(request);
  const AcquireResult result = steps_.run(thread, {.pages = unit, .access = access}, record);

  if (!result.region) {
    if (error) *error = result.error;
    // Copies of memory that is in use, read-only or changing lack no room: nothing is short.
    const bool is_short = result.over_limit || result.error.code == ENOMEM;
    if (!is_short && domains_.domain(number).registers_bytes()) {
      note_observed(thread, transfer);
    } else {
      record.outcome = runlog::Outcome::bounced;
      counters.bounced.add(1);
      counters.bounced_bytes.add(record.bytes);
    }
    // The log has the refusals for want of room alone: reports tell them from memory that no device
    // registers.
    if (!is_short) record.kind = runlog::EventKind::none;
    if (refusal == Refusal::charge) {
      charge_copy(thread, record, result.error);
      return true;
    }
    // The use is over as far as Pinion sees it, but retention learns from one that lacked room.
    release(thread, transfer);
    return false;
  }
  (result.registered_here                    ? counters.misses
   : record.outcome == runlog::Outcome::wait ? counters.waits
                                             : counters.hits)
      .add(1);
  domains_.domain(number).remember(thread.recent, request.begin, result.region);
  return true;
}

/// The range is invalid: it stays out of the records.
bool LeasePath::refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error) {
  Record& record = transfer.record;
  if (error)
    *error = Error::make(EFAULT,
                         "memory %#llx-%#llx cannot be: it is larger than this machine's memory, or beyond "
                         "the address space",
                         static_cast<unsigned long long>(record.address),
                         static_cast<unsigned long long>(record.address + record.bytes));
  ThreadCounters& counters = thread.counters[record.domain];
  counters.acquired_bytes.add(-record.bytes);  // begin_transfer() has added them
  counters.bounced.add(1);
  record.bytes = 0;
  record.kind = runlog::EventKind::none;
  if (refusal == Refusal::charge) return true;
  release(thread, transfer);
  return false;
}

void LeasePath::charge_copy(ThreadContext& thread, Record& transfer, const Error& why) {
  if (!refusal_reported_.exchange(true))
    warn("%s%s; %s (said once)", why.message, others_text(budget()).c_str(),
         spends_modelled_time_
             ? "such transfers take the time of a copy instead"
             : "the MPI library registers such memory itself, Pinion holds nothing, and the report "
               "charges the time of a copy");
  const Ticks cost = calibration().to_ticks(copy_time(transfer.bytes, copy_speed()));
  const Ticks begin = ticks_now();
  ThreadCounters& counters = thread.counters[transfer.domain];
  if (spends_modelled_time_) {
    while (ticks_now() - begin < cost) StdAtomics::relax();
    counters.delayed_ticks.add(cost);
    counters.copied_ticks.add(cost);
  } else {
    transfer.flags |= runlog::kCharged;
  }
  counters.bounce_ticks.add(cost);
}

// ---- releases ----

// One copy for all fronts: its usual ways are free of calls, and need no frame.
void LeasePath::release(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  Quick quick = release_quickly(transfer);
  if (quick == Quick::counted) quick = release_counted(thread, transfer);
  if (quick == Quick::rest) return end_release(&thread, transfer);
  if (quick == Quick::other)
    transfer.unrecorded ? release_unrecorded(thread, transfer) : release_recorded(thread, transfer);
}

void LeasePath::release_recorded(ThreadContext& thread, Transfer& transfer) {
  Record& record = transfer.record;
  record.end = ticks_now();
  if (record.region().region != nullptr) {
    const auto released = end_lease(domains_.domain(record.domain), record);
    if (released != RegionWord::Released::in_use) left_idle(thread, record.domain, record.region(), released);
  }
  trail_.push(thread, record);
  if (transfer.bookkeeping != 0) measured(thread, transfer, record.domain, record.end);
}

/// A use that leaves a time, or whose bookkeeping is measured.
void LeasePath::release_unrecorded(ThreadContext& thread, Transfer& transfer) {
  Region* const region = transfer.served_by;
  const Ticks asked = transfer.bookkeeping != 0 ? ticks_now() : 0;
  if (leaves_time(transfer.domain)) domains_.domain(transfer.domain).used(region, ticks_now());
  region->count_uses();
  if (!give_back(region, transfer)) end_release(&thread, transfer);
  if (asked != 0) [[unlikely]]
    measured(thread, transfer, transfer.domain, asked);
}

/// Retention learns of no use.
void LeasePath::release_unused(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  if (!give_back(transfer.served_by, transfer)) end_release(&thread, transfer);
}

void LeasePath::release_shortened(ThreadContext& thread, Transfer& transfer, std::uint64_t leased,
                                  std::uint64_t used) {
  if (transfer.in_arena()) return release(thread, transfer);
  ThreadCounters& counters = thread.counters[transfer.domain];
  counters.acquired_bytes.add(used - leased);
  if (used == 0) counters.hits.add(std::uint64_t{0} - 1);
  used != 0 || transfer.counted_at != 0 ? release(thread, transfer) : release_unused(thread, transfer);
}

void LeasePath::end_release(ThreadContext* thread, Transfer& transfer) {
  if (transfer.counted_at != 0) return retirement_.retire_closed(*thread);
  const RegionRef ref = transfer.record.region();
  const bool doomed = ref.current() && ref.region->word.load().doomed();
  if (doomed) domains_.domain(transfer.domain).left_doomed(ref.region);
  if (!thread) [[unlikely]]
    return;
  left_idle(*thread, transfer.domain, ref,
            doomed ? RegionWord::Released::idle_doomed : RegionWord::Released::idle);
}

/// A release has left the region idle.
void LeasePath::left_idle(ThreadContext& thread, int number, const RegionRef& ref,
                          RegionWord::Released released) {
  if (released == RegionWord::Released::idle_doomed) [[unlikely]] {
    // The memory went away under the lease: the helper deregisters it, or this thread where regions go with
    // their leases.
    watch_.idle_and_doomed(ref.region->range().bytes());
    if (watch_.blind()) retirement_.reap(thread, number);
  } else if (retirement_.follows_releases()) [[unlikely]] {
    retirement_.after_release(thread, number, ref);
  }
}

void LeasePath::measured(ThreadContext& thread, const Transfer& transfer, int number, Ticks released) {
  thread.counters[number].bookkeeping.add(transfer.bookkeeping + (ticks_now() - released), plausible_hit_);
}

void LeasePath::undo(ThreadContext& thread, Transfer& transfer) {
  if (transfer.counted_at != 0) return release(thread, transfer);
  if (transfer.unrecorded) return release_unused(thread, transfer);
  const RegionRef ref = transfer.record.region();
  const bool registered = transfer.record.outcome == runlog::Outcome::miss;
  transfer.record.kind = runlog::EventKind::none;  // no use to learn from
  release(thread, transfer);
  if (ref.region != nullptr && registered) retirement_.retire(thread, transfer.record.domain, ref);
}

void LeasePath::release_after_run(Transfer& transfer) {
  transfer.active = false;
  if (transfer.region() == nullptr || ::getpid() != process_) return;
  if (transfer.counted_at != 0)
    retirement_.release_after_run(transfer);
  else
    domains().release_after_run(
        transfer.unrecorded ? transfer.domain : static_cast<int>(transfer.record.domain),
        {transfer.region(), transfer.region()->generation()});
}

void LeasePath::note_open(ThreadContext& thread, const Transfer& transfer) {
  if (transfer.unrecorded || transfer.counted_at != 0 || thread.ring.size() == thread.ring.capacity()) return;
  Record record = transfer.record;
  record.end = ticks_now();
  record.set_region({});  // the region stays leased
  trail_.push(thread, record);
}

}  // namespace pinion
