// One acquire on its way: the protocol between a request, its domain, the device, other threads and the other
// domains of the process. A machine of explicit steps: each call takes one, and returns what the driver has
// to do before the next. Drivers block (blocking.h) or schedule events in virtual time (simulate/), so that
// both run the same protocol, waits included.
//
//   step = acquisition.next(now), and then by its value:
//
//   leased, refused, busy   the end: result()
//
//   register_               call the device for range() with rights(); step = registered(..., now)
//
//   deregister              deregister victims() of victims_in(); step = next(now)
//
//   await_...               wait for awaited(); step = next(now)
//
// Owned and used by one thread. It never blocks; it takes the domain's slow lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "registry/acquire.h"
#include "registry/domain.h"
#include "registry/transitions.h"

namespace pinion {

/// The longest wait of an acquire for a crossing memory event of another thread. The kernel may give an
/// address anew before the thread that unmapped it has left its hook. It also lets an madvise return before
/// the reader of its event closes the bracket (userfault.h). Both take some microseconds, or the time slices
/// of a busy machine until that thread runs. The wait is bounded because that thread may be waiting for this
/// one. After a wait in vain others skip it until the event is over.
constexpr Duration kCrossingPatience = 100 * kMillisecond;

/// The longest wait of an acquire, in all, for regions that other threads are deregistering, where a limit
/// leaves no other room: their device calls, and on a busy machine their turns on a core.
constexpr Duration kRoomPatience = kSecond;

class Acquisition {
 public:
  /// `domains`: all of the process; idle regions of the others make room where its limit refuses the request.
  Acquisition(Domain& domain, const AcquireRequest& request, std::span<Domain* const> domains = {})
      : domain_(&domain), victims_in_(&domain), domains_(domains), acquire_{request} {}

  /// Takes the next step: the first one, or the one after the driver has deregistered or waited; also another
  /// try after a refusal. `now`: of the driver's clock, as awaited().until is.
  AcquireStep next(Time now);
  /// Instead of next(), after `register_`.
  AcquireStep registered(const Registration& registration, Time now);

  Domain& domain() const { return *domain_; }
  /// May be changed before the first step.
  AcquireRequest& request() { return acquire_.request; }
  const AcquireRequest& request() const { return acquire_.request; }
  const AcquireAttempt& attempt() const { return acquire_.attempt; }
  const AcquireResult& result() const { return acquire_.result; }

  // ---- after `register_` ----

  Range range() const { return acquire_.attempt.region->range(); }
  Access rights() const { return acquire_.attempt.try_access; }
  /// The page size of `range()` where that is larger than the system's; else 0.
  std::size_t page_bytes() const { return acquire_.attempt.as_large ? acquire_.request.large.page_bytes : 0; }
  /// The memory's events will be missed. True: the region goes with this lease. False: the request has no
  /// lease, or neighbours that a merge would take in can go on being watched; registered() takes the error.
  bool serve_alone();

  // ---- after `deregister` ----

  const std::vector<Region*>& victims() const { return acquire_.attempt.victims; }
  Domain& victims_in() const { return *victims_in_; }

  // ---- after `await_...` ----

  struct Awaited {
    Transitions* change = nullptr;  ///< null: nothing tells of the change; look again soon
    std::uint32_t seen = 0;         ///< of `change`
    /// Then next() is due in any case. While a region is awaited, by the domain's clock.
    Time until = kNever;
    bool over() const { return change == nullptr || change->load() != seen; }
  };
  const Awaited& awaited() const { return awaited_; }
  /// The driver's wait has taken so long, in which threads had lost their core for `preempted`.
  void rested(Duration took, Duration preempted);

 private:
  AcquireStep follow(AcquireStep step, Time now);
  /// Whether `now` is within the patience that began at the first such wait.
  static bool patient(Time& until, Duration patience, Time now);
  AcquireStep await(const Awaited& what);
  /// Claims idle regions of another domain, if those of all others leave room for the request.
  bool others_make_room();
  bool idle_regions_make_room() const;

  Domain* domain_;
  Domain* victims_in_;
  std::span<Domain* const> domains_;
  Acquire acquire_;
  AcquireStep step_ = AcquireStep::refused;
  Awaited awaited_;
  Time crossing_until_ = 0, room_until_ = 0;  ///< 0: no such wait yet
};

}  // namespace pinion
