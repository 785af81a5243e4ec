// The calls of a process on their way through the registry's steps (registry/blocking.h, unrolled over events).
#include <algorithm>

#include "registry/make_room.h"
#include "simulate/process.h"

namespace pinion::simulate {

template <class F>
Duration Process::time_of(std::uint32_t number, bool registration, F&& device_call) {
  const Time begin = clock_.now();
  device_call();
  const Duration modelled = clock_.now() - begin;
  clock_.set(begin);
  const Duration took =
      settings_.call_time ? settings_.call_time(actor(number), registration, modelled) : modelled;
  // A call that took longer than modelled waited for a core meanwhile.
  if (number == kHelper) helper_works(std::min(took, modelled));
  return took;
}

void Process::go(std::uint32_t number, Domain::Step step) {
  Call& made = call(number);
  switch (step) {
    case Domain::Step::refused:
      if (others_make_room(number)) return;
      break;
    case Domain::Step::leased:
      break;
    case Domain::Step::wait:
      made.waited = true;
      if (!made.ticket.lease) break;
      waiting_.push_back(number);
      if (made.ticket.overdue != kNever) schedule(made.ticket.overdue, What::overdue, false, number);
      return;
    case Domain::Step::deregister:
      made.phase = Call::Phase::evicting;
      made.regions = made.ticket.victims;
      made.next = 0;
      retire_next(number);
      return;
    case Domain::Step::register_: {
      made.phase = Call::Phase::registering;
      made.device_begin = clock_.now();
      const Duration took = time_of(number, true, [&] {
        made.registration =
            device_.register_range(made.ticket.region->range(), made.ticket.try_access, actor(number));
      });
      schedule(clock_.now() + took, What::device_call, number != kHelper, number);
      return;
    }
  }
  if (number != kHelper) return acquired(static_cast<std::uint16_t>(number - 1), step);
  const bool ok = step == Domain::Step::leased;
  const RegionRef ref = ok ? RegionRef{made.ticket.region, made.ticket.region->generation()} : RegionRef{};
  desk_.done(job_, ref, ok, made.registration_took, clock_.now());
  // After the registry's own step is through.
  schedule(clock_.now(), What::helper_acts, false, 0);
}

bool Process::others_make_room(std::uint32_t number) {
  Call& made = call(number);
  const Domain::Ticket& ticket = made.ticket;
  if (domains_.size() == 1 || !ticket.lease || !ticket.over_limit) return false;
  const auto for_each = [this](auto&& f) {
    for (OwnDomain& own : domains_) f(own.domain);
  };
  if (!idle_regions_make_room(budget_, ticket.pages.bytes(), for_each)) return false;
  made.regions.clear();
  for (OwnDomain& own : domains_) {
    if (&own == &this->own(ticket.pages)) continue;
    // Regions of the domains before it count in the budget until they are deregistered.
    if (!made.regions.empty()) break;
    made.regions =
        own.domain.begin_shrink(budget_.most_bytes() - ticket.pages.bytes(), budget_.limits().regions - 1);
  }
  if (made.regions.empty()) return false;
  made.phase = Call::Phase::evicting;
  made.next = 0;
  retire_next(number);
  return true;
}

void Process::retire_next(std::uint32_t number) {
  Call& made = call(number);
  if (made.next < made.regions.size()) {
    made.device_begin = clock_.now();
    const Duration took =
        time_of(number, false, [&] { device_.deregister(made.regions[made.next]->key, actor(number)); });
    schedule(clock_.now() + took, What::device_call, number != kHelper, number);
    return;
  }
  if (made.phase == Call::Phase::evicting) return go(number, domain(made.ticket.pages).begin(made.ticket));
  made.phase = Call::Phase::none;
  if (number == kHelper) {
    desk_.done(job_, {}, true, clock_.now() - made.device_begin, clock_.now());
    return act();
  }
  const auto thread = static_cast<std::uint16_t>(number - 1);
  if (settle_next(thread)) return;
  threads_[thread].delayed += made.in_device;
  schedule_next(thread);
}

void Process::device_call_done(std::uint32_t number) {
  Call& made = call(number);
  const auto thread = static_cast<std::uint16_t>(number == kHelper ? 0 : number - 1);
  if (made.phase == Call::Phase::bouncing) {
    made.phase = Call::Phase::none;
    granted(thread);
    return schedule_next(thread);
  }
  const bool registering = made.phase == Call::Phase::registering;
  const Range pages = registering ? made.ticket.region->range() : made.regions[made.next]->range();
  const bool failed = registering && made.registration.error;
  const Duration took = clock_.now() - made.device_begin;
  observer_.device_call(made.device_begin, clock_.now(), pages, registering, failed, actor(number));
  ++(failed        ? counters_.registration_failures
     : registering ? counters_.registrations
                   : counters_.deregistrations);
  made.in_device += took;
  const std::uint32_t entries = registering
                                    ? made.registration.entries_of(pages)
                                    : made.regions[made.next]->entries.load(std::memory_order_relaxed);
  if (number != kHelper) {
    counters_.registration_ns += static_cast<std::uint64_t>(took);
    if (!failed) {
      const std::size_t fresh = registering ? leases_[threads_[thread].lease].leave_pinned.fresh_bytes : 0;
      Record record = record_of({.pages = pages,
                                 .registration = registering,
                                 .entries = entries,
                                 .begin = static_cast<Ticks>(made.device_begin),
                                 .end = clock_.ticks(),
                                 .error = {}},
                                Record());
      record.domain = number_of(own(pages));
      push({{record, thread}, 0, {.fresh_bytes = fresh, .wait = fresh > 0 ? foresee(thread, took) : 0}});
    }
  }
  if (!registering) {
    Region* region = made.regions[made.next++];
    domain(region).finish_retire(region);
    return retire_next(number);
  }
  if (!failed) made.registration_took = took;
  go(number, domain(made.ticket.pages).commit(made.ticket, made.registration));
  resume_waiters();
}

void Process::resume_waiters() {
  if (waiting_.empty()) return;
  std::list<std::uint32_t> waiting;
  waiting.swap(waiting_);
  for (const std::uint32_t number : waiting) {
    const Domain::Ticket& ticket = call(number).ticket;
    if (ticket.region->transitions.load() == ticket.seen) {
      waiting_.push_back(number);
    } else {
      go(number, domain(ticket.pages).begin(call(number).ticket));
    }
  }
}

void Process::overtake(std::uint32_t number) {
  const auto at = std::find(waiting_.begin(), waiting_.end(), number);
  Domain::Ticket& ticket = call(number).ticket;
  if (at == waiting_.end() || clock_.now() < ticket.overdue) return;
  waiting_.erase(at);
  domain(ticket.pages).overtake(ticket);
  ticket.overdue = kNever;
  go(number, domain(ticket.pages).begin(ticket));
}

}  // namespace pinion::simulate
