#include "engine/lease_path.h"

#include <unistd.h>

#include <algorithm>

#include "base/held_signals.h"
#include "base/warning.h"
#include "device/model/cost_model.h"
#include "engine/copy_speed.h"
#include "engine/node_membership.h"
#include "monitor/userfault.h"
#include "registry/blocking.h"

namespace pinion {

namespace {
// The bookkeeping of a hit with every cache cold takes less.
constexpr Duration kPlausibleHit = 10 * kMicrosecond;
}  // namespace

std::atomic<LeasePath*> LeasePath::running_{nullptr};

LeasePath::LeasePath(const Options& options, bool spends_modelled_time, DomainTable& domains,
                     ArenaLeases& arena, MemoryWatch& watch, RunCounters& counters, HelperBell& bell)
    : threshold_(options.threshold),
      acts_below_(options.front == Front::verbs),
      settles_(traits_of(options.retention).decides_on_threads),
      spends_modelled_time_(spends_modelled_time),
      bell_(bell),
      arena_(arena),
      options_(options),
      domains_(domains),
      watch_(watch),
      counters_(counters),
      process_(::getpid()),
      memory_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size()),
      plausible_hit_(calibration().to_ticks(kPlausibleHit)) {}

void LeasePath::know(const DomainSlot& slot) {
  const auto number = static_cast<std::size_t>(slot.number);
  observes_[number] = slot.kept.observed;
  domain_of_[number] = slot.domain.get();
  retention_of_[number] = slot.kept.retention.get();
}

namespace {

/// The kernel lets the unmapping thread go on before the reader of its event has doomed the regions
/// (userfault.h).
void see_events() {
  if (userfaultfd_handling()) [[unlikely]]
    wait_for_userfaultfd();
}

}  // namespace

void LeasePath::begin_transfer(ThreadContext& thread, int number, const CallPoint& call, Range request,
                               Access access, Transfer& transfer) {
  ThreadCounters& counters = thread.counters[number];
  transfer.active = true;
  transfer.in_arena = 0;
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

void LeasePath::hit(ThreadContext& thread, Region* region, const CallPoint& call, Transfer& transfer) {
  transfer.record.set_region({region, region->generation()});
  ThreadCounters& counters = thread.counters[transfer.record.domain];
  counters.hits.add(1);
  // Every 32nd hit of a thread is measured: reading the counter each time would cost as much as a hit.
  if (counters.hits.get() % 32 == 0) transfer.bookkeeping = ticks_now() - call.time;
}

bool LeasePath::acquire(ThreadContext& thread, int number, const CallPoint& call, Range request,
                        Access access, Transfer& transfer, Refusal refusal, Error* error) {
  begin_transfer(thread, number, call, request, access, transfer);
  if (observes_[static_cast<std::size_t>(number)]) {
    if (!is_possible(request)) [[unlikely]]
      return refuse_impossible(thread, transfer, refusal, error);
    transfer.record.outcome = runlog::Outcome::observed;
    thread.counters[number].observed.add(1);
    return true;
  }
  see_events();
  if (Region* region = domain(number).try_hit(request, access, thread.recent)) [[likely]] {
    hit(thread, region, call, transfer);
    return true;
  }
  return acquire_slow(thread, number, request, access, transfer, refusal, error);
}

bool LeasePath::try_acquire(ThreadContext& thread, int number, const CallPoint& call, Range request,
                            Access access, Transfer& transfer) {
  see_events();
  Region* region = domain(number).try_hit(request, access, thread.recent);
  if (!region) return false;
  begin_transfer(thread, number, call, request, access, transfer);
  hit(thread, region, call, transfer);
  return true;
}

bool LeasePath::acquire_slow(ThreadContext& thread, int number, Range request, Access access,
                             Transfer& transfer, Refusal refusal, Error* error) {
  if (!is_possible(request)) [[unlikely]]
    return refuse_impossible(thread, transfer, refusal, error);
  ThreadCounters& counters = thread.counters[number];
  Record& record = transfer.record;
  const AcquireResult result =
      acquire_by_steps(thread, {.pages = request.to_pages(), .access = access}, transfer);

  if (!result.region) {
    if (error) *error = result.error;
    record.outcome = runlog::Outcome::bounced;
    counters.bounced.add(1);
    counters.bounced_bytes.add(record.bytes);
    if (refusal == Refusal::charge) {
      charge_bounce(thread, transfer, result.error);
      return true;
    }
    // The use is over as far as Pinion sees it, but retention learns from it, except where memory was
    // missing.
    if (result.error.code == EFAULT) record.kind = runlog::EventKind::none;
    release(thread, transfer);
    return false;
  }
  (result.registered_here                    ? counters.misses
   : record.outcome == runlog::Outcome::wait ? counters.waits
                                             : counters.hits)
      .add(1);
  domain(record.domain).remember(thread.recent, request.begin, result.region);
  return true;
}

// ---- the arena ----

bool LeasePath::open_in_arena(ThreadContext& thread, int number, Range request, Access access,
                              Transfer& transfer) {
  if (register_segment(thread, number, request) && try_in_arena(thread, number, request, access, transfer))
    return true;
  thread.counters[number].arena_passed.add(1);
  return false;
}

bool LeasePath::register_segment(ThreadContext& thread, int number, Range request) {
  if (observes_[static_cast<std::size_t>(number)] || watch_.keeps_nothing() || watch_.blind()) return false;
  settle_arena();  // an earlier registration of the segment may be over
  const Range pages = arena_.begin_opening(number, request);
  if (pages.empty()) return true;  // it may be open, for all that this thread knows
  Transfer registering;
  registering.record.domain = static_cast<unsigned>(number);
  const AcquireResult result = acquire_by_steps(
      thread,
      {.pages = pages, .access = arena_.rights(), .owner = &arena_, .view = arena_.view_of(pages).begin},
      registering);
  arena_.finish_opening(number, pages, result.region);
  if (result.region) return true;
  settle_arena();
  if (!segment_reported_.exchange(true))
    warn(
        "a segment of the arena stays unregistered, and its requests are served one by one: "
        "%s (said once)",
        result.error.message);
  return false;
}

void LeasePath::close_segments(ThreadContext& thread) {
  settle_arena();
  for (int i = 0; i < domains_.count(); ++i) reap_now(thread, i);
}

void LeasePath::settle_arena() {
  arena_.end_closed([this](int number, const RegionRef& ref) { domain(number).release(ref.region); });
}

void LeasePath::leave_arena(int number) {
  arena_.close(number);
  settle_arena();
}

bool LeasePath::let_arena_go(ThreadContext& thread, std::size_t bytes, Duration rest) {
  if (!arena_.close_idle(bytes, rest)) return false;
  close_segments(thread);
  settle_arena();  // shows the memory to children: the registrations have ended
  return true;
}

// ---- refusals ----

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

void LeasePath::charge_bounce(ThreadContext& thread, Transfer& transfer, const Error& why) {
  if (!bounce_reported_.exchange(true))
    warn("%s%s; %s (said once)", why.message, others_text(budget()).c_str(),
         spends_modelled_time_
             ? "such transfers take the time of a copy instead"
             : "the MPI library registers such memory itself, Pinion holds nothing, and the report "
               "charges the time of a copy");
  // The layer below makes the transfer, and Pinion cannot redirect it to a bounce buffer. So the time of the
  // copy is charged: going without registration is never free.
  const Ticks cost = calibration().to_ticks(copy_time(transfer.record.bytes, copy_speed()));
  const Ticks begin = ticks_now();
  ThreadCounters& counters = thread.counters[transfer.record.domain];
  if (spends_modelled_time_) {
    while (ticks_now() - begin < cost) StdAtomics::relax();
    counters.delayed_ticks.add(cost);
  } else {
    transfer.record.flags |= runlog::kCharged;
  }
  counters.bounce_ticks.add(cost);
}

void LeasePath::release_region(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  Record& record = transfer.record;
  record.end = ticks_now();
  bool settled = false;
  if (Region* region = record.region().region) {
    settled = record.begin < region->settled_until.load(std::memory_order_relaxed);
    const auto released = end_lease(domain(record.domain), record);
    if ((settles_ || fork_gate_.is_closed()) && released == RegionWord::Released::idle)
      settle(thread, record.domain, record.region());
    if (released == RegionWord::Released::idle_doomed) [[unlikely]] {
      // The memory went away under the lease: the helper deregisters it, or this thread where regions go with
      // their leases.
      watch_.idle_and_doomed(region->range().bytes());
      if (watch_.blind()) reap_now(thread, record.domain);
    }
  }
  if (settled || thread.counts_runs) [[unlikely]]
    leave_in_run(thread, record, settled);
  else
    push(thread, record);
  if (transfer.bookkeeping) {
    ThreadCounters& counters = thread.counters[record.domain];
    counters.bookkeeping.add(transfer.bookkeeping + (ticks_now() - record.end), plausible_hit_);
  }
}

void LeasePath::leave_in_run(ThreadContext& thread, const Record& lease, bool settled) {
  if (std::exchange(thread.runs_of, this) != this) thread.runs = {};
  const bool counted =
      thread.runs.end_or_count(lease, settled, [&](const Record& run) { push(thread, run); });
  thread.counts_runs = thread.runs.any();
  if (!counted) push(thread, lease);
}

void LeasePath::end_runs(ThreadContext& thread) {
  if (thread.runs_of == this) thread.runs.end_all([&](const Record& run) { push(thread, run); });
  thread.counts_runs = false;
}

void LeasePath::undo(ThreadContext& thread, Transfer& transfer) {
  if (transfer.in_arena != 0) return release(thread, transfer);
  const RegionRef ref = transfer.record.region();
  const bool registered = transfer.record.outcome == runlog::Outcome::miss;
  transfer.record.kind = runlog::EventKind::none;  // no use to learn from
  release(thread, transfer);
  if (ref.region != nullptr && registered) retire_now(thread, transfer.record.domain, ref);
}

void LeasePath::release_after_run(Transfer& transfer) {
  transfer.active = false;
  if (transfer.region() == nullptr || ::getpid() != process_) return;
  if (transfer.in_arena == 0)
    return domains_.release_after_run(transfer.record.domain, transfer.record.region());
  ThreadContext* const thread = this_thread();
  if (thread == nullptr) return;
  thread->arena().at[std::exchange(transfer.in_arena, 0) - 1u].give_back();
  arena_.end_closed([this](int number, const RegionRef& open) { domains_.release_after_run(number, open); });
}

void LeasePath::settle(ThreadContext& thread, int number, RegionRef idle) {
  if (!settles_ || fork_gate_.is_closed()) return retire_now(thread, number, idle);
  Retention& retention = *retention_of_[static_cast<std::size_t>(number)];
  if (!retention.may_claim()) return;
  const HeldSignals held;
  while (Region* claimed = retention.claim_after_release(idle)) retire_here(thread, number, claimed);
}

void LeasePath::retire_now(ThreadContext& thread, int number, RegionRef ref) {
  const HeldSignals held;
  if (Region* region = domain(number).begin_retire(ref)) retire_here(thread, number, region);
}

namespace {

Record hold_event(const PeerHold& hold, runlog::EventKind kind) {
  Record record;
  record.begin = record.end = ticks_now();
  record.address = hold.pages.begin;
  record.bytes = hold.pages.bytes();
  record.kind = kind;
  record.domain = static_cast<unsigned>(hold.domain);
  return record;
}

}  // namespace

Error LeasePath::begin_hold(ThreadContext& thread, int number, Range pages, Access access, PeerHold& hold) {
  if (!is_possible(pages)) return Error::make(EFAULT, "no memory can be there");
  Transfer registering;
  registering.record.domain = static_cast<unsigned>(number);
  const AcquireResult result = acquire_by_steps(thread, {.pages = pages, .access = access}, registering);
  if (!result.region) return result.error;
  hold = {registering.record.region(), pages, number};
  const bool held = domain(number).begin_hold(hold.region);
  if (domain(number).release(hold.region.region) == RegionWord::Released::idle_doomed) {
    watch_.idle_and_doomed(pages.bytes());
    reap_now(thread, number);
  }
  if (!held) return Error::make(EBUSY, "the memory is changing, or memory events may be missed now");
  push(thread, hold_event(hold, runlog::EventKind::hold_begin));
  return {};
}

void LeasePath::end_hold(ThreadContext& thread, const PeerHold& hold) {
  const auto released = domain(hold.domain).end_hold(hold.region.region);
  push(thread, hold_event(hold, runlog::EventKind::hold_end));
  if (released == RegionWord::Released::idle) retire_now(thread, hold.domain, hold.region);
  if (released == RegionWord::Released::idle_doomed) reap_now(thread, hold.domain);
}

void LeasePath::own_registration_begins(ThreadContext& thread, std::uint64_t bytes) {
  HeldSignals held;
  Budget& budget = domains_.budget();
  const Time patience = monotonic_now() + kRoomPatience;
  while (monotonic_now() < patience) {
    const std::uint32_t departures = budget.departures().load();
    if (budget.reserve(bytes, RealClock().now())) return;
    const std::uint64_t most = budget.most_bytes(), regions = budget.limits().regions;
    bool going = false;
    for (int i = 0; i < domains_.count(); ++i)
      for (Region* victim : domain(i).begin_shrink(most - std::min(most, bytes),
                                                   regions - std::min<std::uint64_t>(regions, 1))) {
        retire_here(thread, i, victim);
        going = true;
      }
    if (going) continue;
    if (budget.leaving_regions() == 0) break;
    held.rest([&] { budget.departures().wait(departures, patience); });
  }
  budget.exceed(bytes, RealClock().now());
}

void LeasePath::own_registration_ends(std::uint64_t bytes) {
  const HeldSignals held;
  domains_.budget().release(bytes, RealClock().now());
}

void LeasePath::let_idle_go(ThreadContext& thread) {
  const HeldSignals held;
  for (int i = 0; i < domains_.count(); ++i)
    for (const RegionRef& idle : domain(i).idle_regions()) retire_now(thread, i, idle);
}

void LeasePath::reap_now(ThreadContext& thread, int number) {
  const HeldSignals held;
  while (Region* region = domain(number).begin_reap()) retire_here(thread, number, region);
}

void LeasePath::retire_here(ThreadContext& thread, int number, Region* region) {
  retire_claimed(domain(number), region, Actor::application,
                 [&](const DeviceCall& call) { note_retirement(thread, number, call); });
}

void LeasePath::note_retirement(ThreadContext& thread, int number, const DeviceCall& call) {
  Record none;
  none.domain = static_cast<unsigned>(number);
  note(thread, none, call);
  thread.counters[number].registration_ticks.add(call.end - call.begin);
  thread.counters[number].preempted_ns.add(static_cast<std::uint64_t>(call.preempted));
  thread.counters[number].delayed_ticks.add(call.end - call.begin);
}

void LeasePath::note(ThreadContext& thread, const Record& transfer, const DeviceCall& call) {
  push(thread, record_of(call, transfer));
  counters_.count_device_call(thread.counters[transfer.domain], call.registration, call.error);
}

double LeasePath::copy_speed() {
  double known = copy_bytes_per_ns_.load(std::memory_order_relaxed);
  if (known > 0) return known;
  known = measure_copy_speed();
  copy_bytes_per_ns_.store(known, std::memory_order_relaxed);
  return known;
}

}  // namespace pinion
