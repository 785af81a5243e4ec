// Blocking wrappers over a domain's steps, for the fronts. They call the device and may sleep: never from a
// hook.
#pragma once

#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/on_monotonic.h"
#include "base/preemption.h"
#include "registry/device_call.h"
#include "registry/domain.h"

namespace pinion {

/// For callers that ignore device calls.
inline constexpr auto not_noted = [](const DeviceCall&) {};

/// Deregisters a region claimed by one of the begin_ functions. `note(const DeviceCall&)` follows the call.
/// The clock is read before the region's bytes may be registered anew, so that time lines too keep to the
/// limit.
template <class Note = decltype(not_noted)>
DeviceCall retire_claimed(Domain& domain, Region* region, Actor actor, Note&& note = {}) {
  DeviceCall call{.pages = region->range(),
                  .registration = false,
                  .entries = region->entries.load(std::memory_order_relaxed),
                  .begin = domain.clock().ticks(),
                  .error = {}};
  PreemptionMeter meter;
  call.error = domain.device().deregister(region->key, actor);
  meter.end();
  call.end = domain.clock().ticks();
  call.preempted = meter.lost(domain.device().least_time(false, call.entries));
  call.error ? domain.fail_retire(region) : domain.finish_retire(region);
  note(std::as_const(call));
  return call;
}

/// The longest wait of an acquire for a crossing memory event of another thread. The kernel may give an
/// address anew before the thread that unmapped it has left its hook. It also lets an madvise return before
/// the reader of its event closes the bracket (userfault.h). Both take some microseconds, or the time slices
/// of a busy machine until that thread runs. The wait is bounded because that thread may be waiting for this
/// one. After a wait in vain others skip it until the event is over.
constexpr Duration kCrossingPatience = 100 * kMillisecond;

/// How long an acquire waits, in all, for regions that other threads are deregistering, where a limit leaves
/// no other room: their device calls, and on a busy machine their turns on a core.
constexpr Duration kRoomPatience = kSecond;

/// For callers whose monitor sees all events of any memory.
inline constexpr auto watched_anyway = [](Range) { return Error{}; };

/// For callers that run a ticket with their signals free.
inline constexpr auto wait_as_is = [](auto&& wait) { wait(); };

/// Runs a ticket to `leased` or `refused`.
/// `note(const DeviceCall&)` follows every call of the device. `watch(Range)` is asked before memory is
/// registered; its error means that the memory's events will go unseen: then the region serves this ticket's
/// lease alone. `rest(f)` runs f, which waits for another thread, free of locks.
template <class Note, class Watch = decltype(watched_anyway), class Rest = decltype(wait_as_is)>
Domain::Step run_ticket(Domain& domain, Domain::Ticket& ticket, Actor actor, bool& waited, Note&& note,
                        Watch&& watch = {}, Rest&& rest = {}) {
  Time patience = 0, room_patience = 0;  // until then
  const auto rested = [&](auto&& f) {
    const Time began = monotonic_now();
    rest(f);
    const Time ended = monotonic_now();
    ticket.rested += ended - began;
    return std::pair(began, ended);
  };
  Domain::Step step = domain.begin(ticket);
  for (;;) {
    switch (step) {
      case Domain::Step::leased:
        return step;
      case Domain::Step::refused: {
        if (ticket.room_is_coming) {
          const Time now = monotonic_now();
          if (room_patience == 0) room_patience = now + kRoomPatience;
          if (now >= room_patience) return step;
          waited = true;
          rested([&] { domain.budget().departures().wait(ticket.departures, room_patience); });
          step = domain.begin(ticket);
          break;
        }
        if (!ticket.crossed_by_another || !ticket.lease) return step;
        const Time now = monotonic_now();  // of real threads, even if the domain's clock is virtual
        if (patience == 0) patience = now + kCrossingPatience;
        if (now >= patience) {
          domain.waited_in_vain();
          return step;
        }
        waited = true;
        rested([] { ::sched_yield(); });
        step = domain.begin(ticket);
        break;
      }
      case Domain::Step::wait:
        waited = true;
        if (!ticket.lease) return step;
        {
          const Duration before = domain.preempted();
          const Time until = on_monotonic(domain.clock(), ticket.overdue);
          const auto [began, woke] = rested([&] { ticket.region->transitions.wait(ticket.seen, until); });
          const Time ended = domain.transition_ended();
          // This thread, too, may wake late. Another region's transition, if it ended later, hides some of
          // that.
          const Duration late = lost_waking(woke - std::min(ended < began ? until : ended, until));
          ticket.preempted += std::min(woke - began, domain.preempted() - before + late);
        }
        if (domain.clock().now() >= ticket.overdue) domain.overtake(ticket);
        step = domain.begin(ticket);
        break;
      case Domain::Step::deregister:
        for (Region* victim : ticket.victims) retire_claimed(domain, victim, actor, note);
        step = domain.begin(ticket);
        break;
      case Domain::Step::register_: {
        const Range range = ticket.region->range();
        if (const Error unwatched = watch(range)) {
          // Neighbours that a merge would take in can go on being watched; the region goes with its lease.
          if (!ticket.lease || !(range == ticket.alone())) {
            step = domain.commit(ticket, {unwatched, {}, {}});
            break;
          }
          ticket.unshared = true;
        }
        DeviceCall call{.pages = range,
                        .registration = true,
                        .page_bytes = ticket.as_large ? ticket.large.page_bytes : 0,
                        .begin = domain.clock().ticks(),
                        .error = {}};
        PreemptionMeter meter;
        Device& device = domain.device();
        const Registration registration =
            ticket.view != 0 ? device.register_view(range, ticket.view, ticket.try_access, actor)
                             : device.register_range(range, ticket.try_access, actor);
        meter.end();
        call.end = domain.clock().ticks();
        call.entries = registration.entries_of(range);
        call.error = registration.error;
        call.preempted = meter.lost(domain.device().least_time(true, call.entries));
        if (const Duration late = std::max(call.preempted, registration.overslept))
          domain.add_preempted(late);
        note(std::as_const(call));
        step = domain.commit(ticket, registration);
        break;
      }
    }
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
