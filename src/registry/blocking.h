// The drivers of real threads, for the fronts: they run an acquisition, or a region's way out, with device
// calls and waits. They may sleep: never from a hook.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/on_monotonic.h"
#include "base/preemption.h"
#include "registry/acquisition.h"
#include "registry/device_call.h"
#include "registry/domain.h"

namespace pinion {

/// For callers that ignore device calls.
inline constexpr auto not_noted = [](const DeviceCall&) {};

namespace blocking {

/// Mends what a call of a device would leave if it threw: its library, or the program's device, may.
template <class Mend>
class IfThrown {
 public:
  explicit IfThrown(Mend mend) : mend_(mend) {}
  ~IfThrown() {
    if (armed_) mend_();
  }
  IfThrown(const IfThrown&) = delete;
  IfThrown& operator=(const IfThrown&) = delete;
  void disarm() { armed_ = false; }

 private:
  Mend mend_;
  bool armed_ = true;
};

}  // namespace blocking

/// Deregisters a region claimed by one of the begin_ functions. `note(const DeviceCall&)` follows the call.
/// The clock is read before the region's bytes may be registered anew, so that time lines too keep to the
/// limit.
template <class Note = decltype(not_noted)>
DeviceCall retire_claimed(Domain& domain, Region* region, Actor actor, Note&& note = {}) {
  DeviceCall call{.pages = region->range(),
                  .registration = false,
                  .entries = region->entries.load(std::memory_order_relaxed),
                  .begin = domain.clock().ticks(),
                  .error = {},
                  .domain = &domain};
  PreemptionMeter meter;
  {
    // The region stays to be tried again if the device throws.
    blocking::IfThrown failed([&] { domain.fail_retire(region); });
    call.error = domain.device().deregister(region->key, actor);
    failed.disarm();
  }
  meter.end();
  call.end = domain.clock().ticks();
  call.preempted = meter.lost(domain.device().least_time(false, call.entries));
  call.error ? domain.fail_retire(region) : domain.finish_retire(region);
  note(std::as_const(call));
  return call;
}

/// For callers whose monitor sees all events of any memory.
inline constexpr auto watched_anyway = [](Range) { return Error{}; };

/// For callers that run an acquisition with their signals free.
inline constexpr auto wait_as_is = [](auto&& wait) { wait(); };

namespace blocking {

/// Waits for what the acquisition awaits. `rest(f)` runs f, which waits, free of locks.
template <class Rest>
void wait_for(Acquisition& acquisition, AcquireStep step, Rest&& rest) {
  Domain& domain = acquisition.domain();
  const Acquisition::Awaited awaited = acquisition.awaited();
  const bool for_region = step == AcquireStep::await_region;
  const Duration before = domain.times().preempted.load(std::memory_order_relaxed);
  const Time until = for_region ? on_monotonic(domain.clock(), awaited.until) : awaited.until;
  const Time began = monotonic_now();
  rest([&] {
    if (awaited.change)
      awaited.change->wait(awaited.seen, until);
    else
      ::sched_yield();
  });
  const Time woke = monotonic_now();
  if (!for_region) return acquisition.rested(woke - began, 0);
  const Time ended = domain.times().transition_ended.load(std::memory_order_relaxed);
  // This thread, too, may wake late. Another region's transition, if it ended later, hides some of that.
  const Duration late = lost_waking(woke - std::min(ended < began ? until : ended, until));
  const Duration theirs = domain.times().preempted.load(std::memory_order_relaxed) - before;
  acquisition.rested(woke - began, std::min(woke - began, theirs + late));
}

/// Ends an acquisition whose device has thrown: its region goes, and threads that wait for it go on.
inline void give_up(Acquisition& acquisition) {
  static_cast<void>(acquisition.registered(
      {Error::make(ECANCELED, "the device's library has thrown"), {}, {}}, monotonic_now()));
  for (Region* victim : acquisition.victims()) acquisition.victims_in().fail_retire(victim);
}

template <class Note>
void retire_victims(Acquisition& acquisition, Actor actor, Note&& note) {
  Domain& domain = acquisition.victims_in();
  std::span<Region* const> left = acquisition.victims();
  IfThrown others([&] {
    for (Region* victim : left) domain.fail_retire(victim);
  });
  while (!left.empty()) {
    Region* const victim = left.front();
    left = left.subspan(1);
    retire_claimed(domain, victim, actor, note);
  }
  others.disarm();
}

/// Calls the device for the acquisition's region.
template <class Note, class Watch>
AcquireStep register_region(Acquisition& acquisition, Actor actor, Note&& note, Watch&& watch) {
  Domain& domain = acquisition.domain();
  const Range range = acquisition.range();
  if (const Error unwatched = watch(range); unwatched && !acquisition.serve_alone())
    return acquisition.registered({unwatched, {}, {}}, monotonic_now());
  DeviceCall call{.pages = range,
                  .registration = true,
                  .page_bytes = acquisition.page_bytes(),
                  .begin = domain.clock().ticks(),
                  .error = {},
                  .domain = &domain};
  PreemptionMeter meter;
  Device& device = domain.device();
  IfThrown refused([&] { give_up(acquisition); });
  const Registration registration = device.register_range(range, acquisition.rights(), actor);
  refused.disarm();
  meter.end();
  call.end = domain.clock().ticks();
  call.entries = registration.entries_of(range);
  call.error = registration.error;
  call.preempted = meter.lost(device.least_time(true, call.entries));
  if (const Duration late = std::max(call.preempted, registration.overslept))
    domain.times().preempted.fetch_add(late, std::memory_order_relaxed);
  note(std::as_const(call));
  return acquisition.registered(registration, monotonic_now());
}

}  // namespace blocking

/// Runs an acquisition to its end: `leased`, `refused` or `busy`. Its clock is that of real threads, even if
/// the domain's clock is virtual.
/// `note(const DeviceCall&)` follows every call of a device. `watch(Range)` is asked before memory is
/// registered; its error means that the memory's events will go unseen: then the region serves this lease
/// alone. `rest(f)` runs f, which waits for another thread, free of locks.
template <class Note = decltype(not_noted), class Watch = decltype(watched_anyway),
          class Rest = decltype(wait_as_is)>
AcquireStep run_blocking(Acquisition& acquisition, Actor actor, Note&& note = {}, Watch&& watch = {},
                         Rest&& rest = {}) {
  AcquireStep step = acquisition.next(monotonic_now());
  for (;;) {
    switch (step) {
      case AcquireStep::leased:
      case AcquireStep::refused:
      case AcquireStep::busy:
        return step;
      case AcquireStep::register_:
        step = blocking::register_region(acquisition, actor, note, watch);
        continue;
      case AcquireStep::deregister:
        blocking::retire_victims(acquisition, actor, note);
        break;
      case AcquireStep::await_region:
      case AcquireStep::await_departure:
      case AcquireStep::await_event:
        blocking::wait_for(acquisition, step, rest);
        break;
    }
    step = acquisition.next(monotonic_now());
  }
}

/// Deregisters everything that is idle (end of a run).
template <class Note = decltype(not_noted)>
void retire_all(Domain& domain, Actor actor, Note&& note = {}) {
  domain.retry_retiring();
  while (Region* region = domain.begin_reap()) retire_claimed(domain, region, actor, note);
  for (const RegionRef& ref : domain.idle_regions()) {
    if (Region* region = domain.begin_retire(ref)) retire_claimed(domain, region, actor, note);
  }
}

}  // namespace pinion
