#include "lease/registry_source.h"

#include "base/machine_memory.h"

namespace pinion {

namespace {

// The bookkeeping of a hit with every cache cold takes less.
constexpr Duration kPlausibleHit = 10 * kMicrosecond;

}  // namespace

bool is_possible(Range request) {
  return is_addressable(request.begin, request.bytes()) && request.bytes() <= machine_memory();
}

RegistrySource::RegistrySource(KnownDomains& domains, MemoryWatch& watch, UseTrail& trail,
                               ThreadRetirement& retirement, BounceCharge& bounce, AcquireBySteps& steps)
    : domains_(domains),
      watch_(watch),
      trail_(trail),
      retirement_(retirement),
      bounce_(bounce),
      steps_(steps),
      plausible_hit_(calibration().to_ticks(kPlausibleHit)) {}

void RegistrySource::begin_transfer(ThreadContext& thread, int number, const CallPoint& call, Range request,
                                    Access access, Transfer& transfer) {
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

void RegistrySource::recorded(ThreadContext& thread, int number, const CallPoint& call, Region* region,
                              Range request, Access access, Transfer& transfer) {
  begin_transfer(thread, number, call, request, access, transfer);
  transfer.record.set_region({region, region->generation()});
  thread.counters[number].hits.add(1);
}

bool RegistrySource::end_share(ThreadContext& thread) {
  retirement_.end_shared(&thread);
  return false;
}

void RegistrySource::note_observed(ThreadContext& thread, Transfer& transfer) {
  transfer.record.outcome = runlog::Outcome::observed;
  thread.counters[transfer.record.domain].observed.add(1);
}

void RegistrySource::observe(ThreadContext& thread, int number, const CallPoint& call, Range request,
                             Access access, Transfer& transfer) {
  begin_transfer(thread, number, call, request, access, transfer);
  note_observed(thread, transfer);
}

bool RegistrySource::acquire_slow(ThreadContext& thread, int number, const CallPoint& call, Range request,
                                  Access access, Transfer& transfer, Refusal refusal, Error* error) {
  begin_transfer(thread, number, call, request, access, transfer);
  if (!is_possible(request)) [[unlikely]]
    return refuse_impossible(thread, transfer, refusal, error);
  if (!domains_.observes(number)) return by_steps(thread, request, access, transfer, refusal, error);
  note_observed(thread, transfer);
  return true;
}

bool RegistrySource::by_steps(ThreadContext& thread, Range request, Access access, Transfer& transfer,
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
      bounce_.charge(thread, record, result.error);
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
bool RegistrySource::refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal,
                                       Error* error) {
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

void RegistrySource::note_open(ThreadContext& thread, const Transfer& transfer) {
  if (transfer.unrecorded || transfer.counted_at != 0 || thread.ring.size() == thread.ring.capacity()) return;
  Record record = transfer.record;
  record.end = ticks_now();
  record.set_region({});  // the region stays leased
  trail_.push(thread, record);
}

void RegistrySource::release_recorded(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
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
void RegistrySource::release_unrecorded(ThreadContext& thread, Transfer& transfer) {
  Region* const region = transfer.served_by;
  const Ticks asked = transfer.bookkeeping != 0 ? ticks_now() : 0;
  if (leaves_time(transfer.domain)) domains_.domain(transfer.domain).used(region, ticks_now());
  region->count_uses();
  if (!give_back(transfer.served_by, transfer)) end_release(&thread, transfer);
  if (asked != 0) [[unlikely]]
    measured(thread, transfer, transfer.domain, asked);
}

/// Retention learns of no use.
void RegistrySource::release_unused(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  if (!give_back(transfer.served_by, transfer)) end_release(&thread, transfer);
}

void RegistrySource::release_shortened(ThreadContext& thread, Transfer& transfer, std::uint64_t leased,
                                       std::uint64_t used) {
  ThreadCounters& counters = thread.counters[transfer.domain];
  counters.acquired_bytes.add(used - leased);
  if (used != 0) return release(thread, transfer);
  counters.hits.add(std::uint64_t{0} - 1);
  release_unused(thread, transfer);
}

void RegistrySource::end_release(ThreadContext* thread, Transfer& transfer) {
  const RegionRef ref = transfer.record.region();
  const bool doomed = ref.current() && ref.region->word.load().doomed();
  if (doomed) domains_.domain(transfer.domain).left_doomed(ref.region);
  if (!thread) [[unlikely]]
    return;
  left_idle(*thread, transfer.domain, ref,
            doomed ? RegionWord::Released::idle_doomed : RegionWord::Released::idle);
}

void RegistrySource::left_doomed(ThreadContext& thread, int number, const Region& region) {
  // The memory went away under the lease: the helper deregisters it, or this thread where regions go with
  // their leases.
  watch_.idle_and_doomed(region.range().bytes());
  if (watch_.blind()) retirement_.reap(thread, number);
}

void RegistrySource::measured(ThreadContext& thread, const Transfer& transfer, int number, Ticks released) {
  thread.counters[number].bookkeeping.add(transfer.bookkeeping + (ticks_now() - released), plausible_hit_);
}

void RegistrySource::undo(ThreadContext& thread, Transfer& transfer) {
  if (transfer.unrecorded) return release_unused(thread, transfer);
  const RegionRef ref = transfer.record.region();
  const bool registered = transfer.record.outcome == runlog::Outcome::miss;
  transfer.record.kind = runlog::EventKind::none;  // no use to learn from
  release(thread, transfer);
  if (ref.region != nullptr && registered) retirement_.retire(thread, transfer.record.domain, ref);
}

}  // namespace pinion
