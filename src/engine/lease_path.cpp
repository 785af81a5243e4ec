#include "engine/lease_path.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/held_signals.h"
#include "engine/copy_speed.h"
#include "monitor/userfault.h"
#include "registry/blocking.h"

namespace pinion {

std::atomic<LeasePath*> LeasePath::running_{nullptr};

LeasePath::LeasePath(const Options& options, DomainTable& domains, MemoryWatch& watch, RunCounters& counters,
                     HelperBell& bell)
    : threshold_(options.threshold),
      observes_(options.retention == RetentionKind::observe),
      retire_at_release_(options.retention == RetentionKind::on_demand),
      spends_modelled_time_(options.device == "emulated"),
      bell_(bell),
      options_(options),
      domains_(domains),
      watch_(watch),
      counters_(counters),
      process_(::getpid()),
      memory_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size()) {}

void LeasePath::know(const DomainSlot& slot) {
  domain_of_[static_cast<std::size_t>(slot.number)] = slot.domain.get();
}

namespace {

/// The kernel lets whoever unmaps go on before the reader of its event has doomed the regions (userfault.h).
void see_events() {
  if (userfaultfd_handling()) [[unlikely]]
    wait_for_userfaultfd();
}

}  // namespace

void LeasePath::begin_transfer(ThreadContext& thread, int number, const CallPoint& call, Range request,
                               Access access, Transfer& transfer) {
  ThreadCounters& counters = thread.counters[number];
  transfer.active = true;
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
  // Every 32nd hit of a thread is measured: reading the counter each time would cost as much as what it
  // measures.
  if (counters.hits.get() % 32 == 0) transfer.bookkeeping = ticks_now() - call.time;
}

bool LeasePath::acquire(ThreadContext& thread, int number, const CallPoint& call, Range request,
                        Access access, Transfer& transfer, Refusal refusal, Error* error) {
  begin_transfer(thread, number, call, request, access, transfer);
  if (observes_) {
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
  Domain::Ticket ticket;
  ticket.pages = request.to_pages();
  ticket.access = access;
  const auto step = acquire_by_steps(thread, ticket, transfer);

  if (step == Domain::Step::refused) {
    if (error) *error = ticket.error;
    record.outcome = runlog::Outcome::bounced;
    counters.bounced.add(1);
    counters.bounced_bytes.add(record.bytes);
    if (refusal == Refusal::charge) {
      charge_bounce(thread, transfer, ticket.error);
      return true;
    }
    // The use is over as far as Pinion sees it, but retention learns from it, except where memory was
    // missing.
    if (ticket.error.code == EFAULT) record.kind = runlog::EventKind::none;
    release(thread, transfer);
    return false;
  }
  (ticket.registered_here                    ? counters.misses
   : record.outcome == runlog::Outcome::wait ? counters.waits
                                             : counters.hits)
      .add(1);
  domain(record.domain).remember(thread.recent, request.begin, ticket.region);
  return true;
}

Domain::Step LeasePath::acquire_by_steps(ThreadContext& thread, Domain::Ticket& ticket, Transfer& transfer) {
  HeldSignals held;
  watch_.check_hooks();
  Record& record = transfer.record;
  const int number = record.domain;
  ThreadCounters& counters = thread.counters[number];
  const Ticks begin = ticks_now();
  Ticks in_device = 0;
  bool waited = false;
  const auto step = run_ticket(
      domain(number), ticket, Actor::application, waited,
      [&](Range pages, bool registration, const Error& refused, Time from, Time to) {
        const Calibration& scale = calibration();
        Record call = record;
        call.begin = begin + scale.to_ticks(from - scale.to_time(begin));
        call.end = begin + scale.to_ticks(to - scale.to_time(begin));
        call.address = pages.begin;
        call.bytes = pages.bytes();
        call.kind = registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
        call.flags = refused ? runlog::kFailed : 0;
        push(thread, call);
        in_device += call.end - call.begin;
        counters_.count_device_call(counters, registration, refused);
      },
      [this](Range pages) { return watch_.watch(pages); }, [&](auto&& wait) { held.rest(wait); });
  const Ticks all = ticks_now() - begin;
  record.wait = std::min(all, Record::kMostWait);
  counters.registration_ticks.add(in_device);
  if (all > in_device) counters.wait_ticks.add(all - in_device);
  counters.delayed_ticks.add(std::max(all, in_device));
  if (step == Domain::Step::refused) return step;

  // Before signals are let through: the transfer, and so the caller, has the lease.
  record.set_region({ticket.region, ticket.region->generation()});
  record.outcome = ticket.registered_here ? runlog::Outcome::miss
                   : waited               ? runlog::Outcome::wait
                                          : runlog::Outcome::hit;
  if (options_.retention == RetentionKind::lru && ticket.registered_here) {
    for (Region* victim : domain(number).begin_trim()) retire_claimed_here(thread, number, victim);
  }
  return step;
}

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
    std::fprintf(stderr, "pinion: %s; %s (said once)\n", why.message,
                 spends_modelled_time_
                     ? "such transfers take the time of a copy instead"
                     : "the MPI library registers such memory itself, Pinion holds nothing, and the report "
                       "charges the time of a copy");
  // The transfer itself is made by the layer below, which Pinion cannot redirect to a bounce buffer: the copy
  // that one would need is charged as time, as going without registration is never free.
  const auto ns = static_cast<double>(transfer.record.bytes) / copy_speed();
  const Ticks begin = ticks_now();
  const Ticks cost = calibration().to_ticks(static_cast<Duration>(ns));
  ThreadCounters& counters = thread.counters[transfer.record.domain];
  if (spends_modelled_time_) {
    while (ticks_now() - begin < cost) StdAtomics::relax();
    counters.delayed_ticks.add(cost);
  } else {
    transfer.record.flags |= runlog::kCharged;
  }
  counters.bounce_ticks.add(cost);
}

void LeasePath::release(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  Record& record = transfer.record;
  record.end = ticks_now();
  Region* region = record.region().region;
  if (region) {
    if (region->memory_changed.load(std::memory_order_relaxed)) [[unlikely]]
      record.flags |= runlog::kMemoryGone;
    const auto released = domain(record.domain).release(region, record.begin, record.end);
    if ((retire_at_release_ || fork_gate_.is_closed()) && released == RegionWord::Released::idle)
      retire_now(thread, record.domain, record.region());
    if (released == RegionWord::Released::idle_doomed) [[unlikely]] {
      // The memory went away under the lease: the helper's work, unless nothing may be kept.
      watch_.idle_and_doomed(region->range().bytes());
      if (watch_.blind()) reap_now(thread, record.domain);
    }
  }
  push(thread, record);
  if (transfer.bookkeeping) {
    ThreadCounters& counters = thread.counters[record.domain];
    counters.bookkeeping_ticks.add(transfer.bookkeeping + (ticks_now() - record.end));
    counters.bookkeeping_samples.add(1);
  }
}

void LeasePath::release_after_run(Transfer& transfer) {
  transfer.active = false;
  const RegionRef ref = transfer.record.region();
  if (!ref.region || ::getpid() != process_) return;
  domains_.release_after_run(transfer.record.domain, ref);
}

void LeasePath::retire_now(ThreadContext& thread, int number, RegionRef ref) {
  const HeldSignals held;
  if (Region* region = domain(number).begin_retire(ref)) retire_claimed_here(thread, number, region);
}

void LeasePath::let_idle_go(ThreadContext& thread) {
  const HeldSignals held;
  for (int i = 0; i < domains_.count(); ++i)
    for (const RegionRef& idle : domain(i).idle_regions()) retire_now(thread, i, idle);
}

void LeasePath::reap_now(ThreadContext& thread, int number) {
  const HeldSignals held;
  while (Region* region = domain(number).begin_reap()) retire_claimed_here(thread, number, region);
}

void LeasePath::retire_claimed_here(ThreadContext& thread, int number, Region* region) {
  const Range pages = region->range();
  Record call;
  call.begin = ticks_now();
  const auto retired = retire_claimed(domain(number), region, Actor::application, ticks_now);
  call.end = retired.end;
  call.flags = retired.error ? runlog::kFailed : 0;
  call.address = pages.begin;
  call.bytes = pages.bytes();
  call.kind = runlog::EventKind::deregistration;
  call.domain = static_cast<unsigned>(number);
  push(thread, call);
  counters_.count_device_call(thread.counters[number], false, retired.error);
  thread.counters[number].registration_ticks.add(call.end - call.begin);
  thread.counters[number].delayed_ticks.add(call.end - call.begin);
}

double LeasePath::copy_speed() {
  double known = copy_bytes_per_ns_.load(std::memory_order_relaxed);
  if (known > 0) return known;
  known = measure_copy_speed();
  copy_bytes_per_ns_.store(known, std::memory_order_relaxed);
  return known;
}

}  // namespace pinion
