#include "simulate/threads.h"

#include <algorithm>
#include <utility>

namespace pinion::simulate {

Threads::Threads(const ProcessSettings& settings, Events& events, Domains& domains, Calls& calls,
                 Comparison& comparison, SimulatedHelper& helper, Observer& observer,
                 runlog::Counters& counters)
    : settings_(settings),
      traits_(traits_of(settings.retention)),
      events_(events),
      domains_(domains),
      calls_(calls),
      comparison_(comparison),
      helper_(helper),
      observer_(observer),
      counters_(counters),
      ended_(settings.start) {}

void Threads::add(Script& script) {
  threads_.emplace_back().script = &script;
  threads_.back().free_at = events_.now();
  calls_.add_thread();
  resume(static_cast<std::uint16_t>(threads_.size() - 1));
}

void Threads::resume(std::uint16_t number) {
  if (threads_[number].idle) schedule_next(number);
}

void Threads::change_memory(Range range, std::uint16_t number) {
  helper_.doomed(domains_.change_memory(range));
  ++counters_.memory_events;
  comparison_.memory_changed(range);
  helper_.notify({{memory_event_at(events_.now(), range), number}, 0, {}});
}

// ---- scripts ----

Time Threads::fetch(Thread& thread) {
  ended_ = std::max(ended_, thread.free_at);
  thread.idle = !thread.script->next(thread.operation);
  if (thread.idle) return kNever;
  const Operation& next = thread.operation;
  thread.met = peers_ == nullptr || !next.meets;
  const Duration transfer = thread.met ? next.transfer : 0;
  return std::max({thread.free_at + next.compute + transfer, next.not_before, events_.now()});
}

Time Threads::meet(std::uint16_t number) {
  Thread& thread = threads_[number];
  thread.met = peers_->met();
  if (thread.met) return events_.now() + thread.operation.transfer;
  waits_for_peers_ = number;
  return kNever;
}

void Threads::peers_came(Time now) {
  Thread& thread = threads_[waits_for_peers_];
  thread.met = true;
  events_.schedule(now + thread.operation.transfer, Event::What::thread, true, waits_for_peers_);
  waits_for_peers_ = kNobody;
}

void Threads::begin_messages(const Operation& operation) {
  if (peers_ == nullptr || operation.messages == 0) return;
  if (peers_->begin(operation.messages)) others_go_on_ = true;
}

void Threads::schedule_next(std::uint16_t number) {
  Thread& thread = threads_[number];
  if (!thread.idle) thread.free_at = events_.now();
  const Time due = fetch(thread);
  if (!thread.idle) events_.schedule(due, Event::What::thread, true, number);
}

void Threads::run(std::uint16_t number, Time until) {
  Thread& thread = threads_[number];
  others_go_on_ = false;
  while (true) {
    Time due = kNever;
    if (thread.met) {
      if (!perform(number)) return;
      thread.free_at = events_.now();
      due = fetch(thread);
      if (thread.idle) return;
    } else if ((due = meet(number)) == kNever) {
      return;
    }
    if (others_go_on_ || due > until || due >= events_.next())
      return events_.schedule(due, Event::What::thread, true, number);
    events_.clock().set(due);
  }
}

bool Threads::perform(std::uint16_t number) {
  Thread& thread = threads_[number];
  const Operation& operation = thread.operation;
  switch (operation.kind) {
    case Operation::Kind::acquire:
      return acquire(number, operation);
    case Operation::Kind::release:
      return release(number, thread.slots[operation.slot], true);
    case Operation::Kind::memory_event:
      change_memory(operation.range, number);
      return true;
    case Operation::Kind::pause:
      begin_messages(operation);
      return true;
  }
  return true;
}

// ---- leases ----

HeldLease& Threads::take_lease(std::uint16_t number, const Operation& operation) {
  Thread& thread = threads_[number];
  thread.lease = leases_.take();
  if (operation.slot >= thread.slots.size()) thread.slots.resize(operation.slot + std::size_t{1});
  thread.slots[operation.slot] = thread.lease;
  HeldLease& lease = leases_[thread.lease];
  lease.thread = number;
  lease.settled = false;
  lease.range = operation.range;
  lease.number = counters_.acquires++;
  counters_.acquired_bytes += operation.range.bytes();
  Record& record = lease.record = Record();
  record.begin = events_.clock().ticks();
  record.delayed = static_cast<Ticks>(thread.delayed);
  record.address = operation.range.begin;
  record.bytes = operation.range.bytes();
  record.site = operation.site;
  record.kind = runlog::EventKind::lease;
  record.call = operation.call;
  record.access = operation.access;
  record.domain = static_cast<unsigned>(domains_.own(operation.range).kept.number);
  return lease;
}

bool Threads::acquire(std::uint16_t number, const Operation& operation) {
  Thread& thread = threads_[number];
  thread.asked = events_.now();
  HeldLease& lease = take_lease(number, operation);
  if (operation.page_order != 0) domains_.note_pages(operation.range, operation.page_order);
  const LargeRange large = domains_.large_around(operation.range);
  lease.pages = large.empty() ? operation.range.to_pages() : large.range;
  lease.leave_pinned = comparison_.asked(lease.pages);

  if (!traits_.registers) {
    lease.record.outcome = runlog::Outcome::observed;
    ++counters_.observed;
    granted(number);
    return true;
  }
  if (Region* region =
          domains_.of(operation.range).try_hit(operation.range, operation.access, *thread.recent)) {
    lease.record.set_region({region, region->generation()});
    lease.settled = region->settled.load(std::memory_order_relaxed);
    ++counters_.hits;
    granted(number);
    return true;
  }
  const Range unit = domains_.of(operation.range).unit_of(operation.range);
  calls_.acquire(call_of(number), {.pages = unit, .large = large, .access = operation.access});
  return false;
}

void Threads::acquired(std::uint32_t call, AcquireStep step) {
  const std::uint16_t number = thread_of(call);
  Thread& thread = threads_[number];
  const Call& made = calls_.call(call);
  const AcquireResult& result = made.acquisition->result();
  HeldLease& lease = leases_[thread.lease];
  Record& record = lease.record;
  const Duration waited = events_.now() - thread.asked;
  delay(thread, waited);
  note_wait(lease, waited);
  counters_.wait_ns += static_cast<std::uint64_t>(waited - made.in_device);
  if (step == AcquireStep::refused) {
    record.outcome = runlog::Outcome::bounced;
    ++counters_.bounced;
    counters_.bounced_bytes += record.bytes;
    if (const Duration copy = copy_time(record.bytes, settings_.memcpy_bytes_per_ns)) {
      thread.delayed += copy;  // the limit's doing, which the time budget leaves out
      counters_.bounce_ns += static_cast<std::uint64_t>(copy);
      return events_.schedule(events_.now() + copy, Event::What::copied, true, number);
    }
  } else {
    Region* region = result.region;
    record.set_region({region, region->generation()});
    record.outcome = outcome_of(result.registered_here, result.waited);
    ++(result.registered_here ? counters_.misses : result.waited ? counters_.waits : counters_.hits);
    region->last_use.store(events_.clock().ticks(), std::memory_order_relaxed);
    domains_.of(region).remember(*thread.recent, record.address, region);
  }
  granted(number);
  if (result.registered_here && let_go(number, {})) return;
  schedule_next(number);
}

void Threads::copied(std::uint16_t number) {
  granted(number);
  schedule_next(number);
}

void Threads::granted(std::uint16_t number) {
  const Thread& thread = threads_[number];
  HeldLease& lease = leases_[thread.lease];
  const Time now = events_.now();
  lease.leased = now;
  comparison_.leased(lease.pages);
  observer_.acquired(lease.number, thread.asked, now, lease.record.outcome);
  if (thread.operation.lasts != kUntilReleased)
    events_.schedule(now + thread.operation.lasts, Event::What::release, true, thread.lease);
  begin_messages(thread.operation);
}

bool Threads::release(std::uint16_t number, std::uint32_t index, bool by_thread) {
  HeldLease& lease = leases_[index];
  Record& record = lease.record;
  record.end = events_.clock().ticks();
  comparison_.released(lease.pages, lease.leased);
  const RegionRef ref = record.region();
  const bool recorded = !lease.settled;
  if (!recorded) {
    ref.region->count_uses();
    if (domains_.of(ref.region).pressed()) domains_.of(ref.region).used(ref.region, record.end);
  }
  const bool idle =
      ref.region && (recorded ? pinion::end_lease(domains_.of(ref.region), record)
                              : domains_.of(ref.region).release(ref.region)) == RegionWord::Released::idle;
  observer_.used({record, number});
  if (recorded) helper_.notify({{record, number}, lease.number, lease.leave_pinned});
  leases_.give_back(index);
  return !idle || !by_thread || !let_go(number, ref);
}

// ---- waits ----

void Threads::delay(Thread& thread, Duration by) {
  thread.delayed += by;
  helper_.delayed(by);
}

void Threads::note_wait(HeldLease& lease, Duration wait) {
  lease.record.wait = std::min(static_cast<Ticks>(wait), Record::kMostWait);
  if (lease.leave_pinned.fresh_bytes == 0) return;
  const Duration theirs = comparison_.leave_pinned_part(lease.leave_pinned, lease.pages, wait);
  lease.leave_pinned.wait += theirs;
  counters_.leave_pinned_registration_ns += static_cast<double>(theirs);
}

Duration Threads::foresee(HeldLease& lease, Duration took) {
  const Duration wait = comparison_.leave_pinned_part(lease.leave_pinned, lease.pages, took);
  lease.leave_pinned.wait -= wait;
  return wait;
}

void Threads::made(std::uint32_t call, const DeviceCall& device_call) {
  const std::uint16_t number = thread_of(call);
  HeldLease& lease = leases_[threads_[number].lease];
  const std::size_t fresh = device_call.registration ? lease.leave_pinned.fresh_bytes : 0;
  const auto took = static_cast<Duration>(device_call.end - device_call.begin);
  Record record = record_of(device_call, Record());
  record.domain = static_cast<unsigned>(domains_.own(device_call.pages).kept.number);
  helper_.notify({{record, number}, 0, {.fresh_bytes = fresh, .wait = fresh > 0 ? foresee(lease, took) : 0}});
}

// ---- deregistrations on the thread ----

bool Threads::let_go(std::uint16_t number, RegionRef left_idle) {
  if (!traits_.decides_on_threads) return false;
  threads_[number].left_idle = left_idle;
  calls_.call(call_of(number)).in_device = 0;
  return let_next_go(number);
}

bool Threads::let_next_go(std::uint16_t number) {
  const RegionRef idle = threads_[number].left_idle;
  const Range pages =
      idle.region ? idle.region->range() : calls_.call(call_of(number)).acquisition->request().pages;
  Retention& retention = *domains_.own(pages).kept.retention;
  Region* region = idle.region ? retention.claim_after_release(idle) : retention.claim_after_registration();
  if (!region) return false;
  calls_.retire(call_of(number), {region});
  return true;
}

void Threads::retired(std::uint32_t call) {
  const std::uint16_t number = thread_of(call);
  if (let_next_go(number)) return;
  delay(threads_[number], calls_.call(call).in_device);
  schedule_next(number);
}

}  // namespace pinion::simulate
