#include "simulate/calls.h"

#include <algorithm>
#include <utility>

namespace pinion::simulate {

template <class F>
void Calls::call_device(std::uint32_t number, bool registration, F&& device_call) {
  const Time begin = call(number).device_begin = events_.now();
  device_call();
  const Duration modelled = events_.now() - begin;
  events_.clock().set(begin);
  const Duration took =
      settings_.call_time ? settings_.call_time(actor(number), registration, modelled) : modelled;
  // A call that took longer than modelled waited for a core meanwhile.
  user(number).computes(std::min(took, modelled));
  events_.schedule(begin + took, Event::What::device_call, number != kHelper, number);
}

void Calls::acquire(std::uint32_t number, const AcquireRequest& request) {
  Call& made = call(number);
  // The helper makes no other domain shrink.
  const std::span<Domain* const> shrinking = request.lease ? domains_.pointers() : std::span<Domain* const>();
  made.acquisition.emplace(domains_.of(request.pages), request, shrinking);
  made.in_device = 0;
  made.registration_took = 0;
  go(number, made.acquisition->next(events_.now()));
}

void Calls::retire(std::uint32_t number, std::vector<Region*> regions) {
  Call& made = call(number);
  made.phase = Call::Phase::retiring;
  made.regions = std::move(regions);
  made.next = 0;
  retire_next(number);
}

void Calls::go(std::uint32_t number, AcquireStep step) {
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
      if (until != kNever) events_.schedule(until, Event::What::wait_ends, false, number);
      return;
    }
    case AcquireStep::deregister:
      made.phase = Call::Phase::evicting;
      made.regions = made.acquisition->victims();
      made.next = 0;
      return retire_next(number);
    case AcquireStep::register_:
      made.phase = Call::Phase::registering;
      return call_device(number, true, [&] {
        made.registration = domains_.device().register_range(made.acquisition->range(),
                                                             made.acquisition->rights(), actor(number));
      });
  }
  made.phase = Call::Phase::none;
  user(number).acquired(number, step);
}

void Calls::retire_next(std::uint32_t number) {
  Call& made = call(number);
  if (made.next < made.regions.size()) {
    call_device(number, false, [&] {
      // The model's device refuses none.
      static_cast<void>(domains_.device().deregister(made.regions[made.next]->key, actor(number)));
    });
    return;
  }
  if (made.phase == Call::Phase::evicting) return go(number, made.acquisition->next(events_.now()));
  made.phase = Call::Phase::none;
  user(number).retired(number);
}

void Calls::device_call_done(std::uint32_t number) {
  Call& made = call(number);
  const bool registering = made.phase == Call::Phase::registering;
  const Range pages = registering ? made.acquisition->range() : made.regions[made.next]->range();
  const bool failed = registering && made.registration.error;
  const Time now = events_.now();
  const Duration took = now - made.device_begin;
  observer_.device_call(made.device_begin, now, pages, registering, failed, actor(number));
  ++(failed        ? counters_.registration_failures
     : registering ? counters_.registrations
                   : counters_.deregistrations);
  made.in_device += took;
  if (number != kHelper) counters_.registration_ns += static_cast<std::uint64_t>(took);
  if (!failed) {
    const std::uint32_t entries = registering
                                      ? made.registration.entries_of(pages)
                                      : made.regions[made.next]->entries.load(std::memory_order_relaxed);
    user(number).made(number, {.pages = pages,
                               .registration = registering,
                               .entries = entries,
                               .begin = static_cast<Ticks>(made.device_begin),
                               .end = static_cast<Ticks>(now),
                               .error = {}});
  }
  if (!registering) {
    Region* region = made.regions[made.next++];
    domains_.of(region).finish_retire(region);
    retire_next(number);
    return resume_waiters();  // there may be room
  }
  if (!failed) made.registration_took = took;
  go(number, made.acquisition->registered(made.registration, events_.now()));
  resume_waiters();
}

void Calls::resume_waiters() {
  if (waiting_.empty()) return;
  std::list<std::uint32_t> waiting;
  waiting.swap(waiting_);
  for (const std::uint32_t number : waiting) {
    Acquisition& acquisition = *call(number).acquisition;
    if (acquisition.awaited().over())
      go(number, acquisition.next(events_.now()));
    else
      waiting_.push_back(number);
  }
}

void Calls::wait_ended(std::uint32_t number) {
  const auto at = std::find(waiting_.begin(), waiting_.end(), number);
  Acquisition& acquisition = *call(number).acquisition;
  if (at == waiting_.end() || events_.now() < acquisition.awaited().until) return;
  waiting_.erase(at);
  go(number, acquisition.next(events_.now()));
}

}  // namespace pinion::simulate
