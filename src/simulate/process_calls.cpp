// The calls of a process on their way through the registry's steps (registry/blocking.h, unrolled over
// events).
#include <algorithm>

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

void Process::go(std::uint32_t number, AcquireStep step) {
  Call& made = call(number);
  switch (step) {
    case AcquireStep::leased:
    case AcquireStep::refused:
    case AcquireStep::busy:
      break;
    case AcquireStep::await_region:
    case AcquireStep::await_departure:
    case AcquireStep::await_event: {
      waiting_.push_back(number);
      const Time until = made.acquisition->awaited().until;
      if (until != kNever) schedule(until, What::wait_ends, false, number);
      return;
    }
    case AcquireStep::deregister:
      made.phase = Call::Phase::evicting;
      made.regions = made.acquisition->victims();
      made.next = 0;
      return retire_next(number);
    case AcquireStep::register_: {
      made.phase = Call::Phase::registering;
      made.device_begin = clock_.now();
      const Duration took = time_of(number, true, [&] {
        made.registration =
            device_.register_range(made.acquisition->range(), made.acquisition->rights(), actor(number));
      });
      return schedule(clock_.now() + took, What::device_call, number != kHelper, number);
    }
  }
  if (number != kHelper) return acquired(static_cast<std::uint16_t>(number - 1), step);
  const bool ok = step == AcquireStep::leased;
  Region* const region = made.acquisition->result().region;
  const RegionRef ref = ok ? RegionRef{region, region->generation()} : RegionRef{};
  desk_.done(job_, ref, ok, made.registration_took, clock_.now());
  // After the registry's own step is through.
  schedule(clock_.now(), What::helper_acts, false, 0);
}

void Process::retire_next(std::uint32_t number) {
  Call& made = call(number);
  if (made.next < made.regions.size()) {
    made.device_begin = clock_.now();
    const Duration took = time_of(number, false, [&] {
      // The model's device refuses none.
      static_cast<void>(device_.deregister(made.regions[made.next]->key, actor(number)));
    });
    schedule(clock_.now() + took, What::device_call, number != kHelper, number);
    return;
  }
  if (made.phase == Call::Phase::evicting) return go(number, made.acquisition->next(clock_.now()));
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
  const Range pages = registering ? made.acquisition->range() : made.regions[made.next]->range();
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
    retire_next(number);
    return resume_waiters();  // there may be room
  }
  if (!failed) made.registration_took = took;
  go(number, made.acquisition->registered(made.registration, clock_.now()));
  resume_waiters();
}

void Process::resume_waiters() {
  if (waiting_.empty()) return;
  std::list<std::uint32_t> waiting;
  waiting.swap(waiting_);
  for (const std::uint32_t number : waiting) {
    Acquisition& acquisition = *call(number).acquisition;
    if (acquisition.awaited().over())
      go(number, acquisition.next(clock_.now()));
    else
      waiting_.push_back(number);
  }
}

void Process::wait_ended(std::uint32_t number) {
  const auto at = std::find(waiting_.begin(), waiting_.end(), number);
  Acquisition& acquisition = *call(number).acquisition;
  if (at == waiting_.end() || clock_.now() < acquisition.awaited().until) return;
  waiting_.erase(at);
  go(number, acquisition.next(clock_.now()));
}

}  // namespace pinion::simulate
