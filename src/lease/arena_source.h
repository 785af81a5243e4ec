// The first source of leases (lease_path.h): requests within the arena, served by the registration of a whole
// segment (arena_leases.h). A request costs a range test, a subtraction and a count; it leaves no record.
//
// Owns whether the user was told of a refusal. Any thread, outside of hooks; try_lease() is lock-free.
#pragma once

#include <atomic>

#include "lease/acquire_by_steps.h"
#include "lease/counted_closing.h"
#include "lease/transfer.h"

namespace pinion {

class ArenaSource {
 public:
  ArenaSource(ArenaLeases& leases, KnownDomains& domains, MemoryWatch& watch, AcquireBySteps& steps,
              CountedClosing& closing)
      : leases_(leases), domains_(domains), watch_(watch), steps_(steps), closing_(closing) {}

  /// Whether the address lies in the arena.
  bool holds(Address address) const { return leases_.holds(address); }
  /// Serves a request in a segment, which is registered first where that may be. False, without effect: the
  /// next source is to serve it.
  bool lease(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer) {
    if (!leases_.holds(request.begin)) [[likely]]
      return false;
    return take(thread, domain, request, access, transfer) || open(thread, domain, request, access, transfer);
  }
  /// Serves a request in a segment that is registered already; else false, without effect.
  [[gnu::always_inline]] bool try_lease(ThreadContext& thread, int domain, Range request, Access access,
                                        Transfer& transfer) {
    return holds(request.begin) && take(thread, domain, request, access, transfer);
  }
  /// Whether segments may be registered for the domain at the moment.
  bool may_open(int domain) const;
  /// Registers a segment before a request needs it; the registration is `expected` to take so long. False:
  /// refused.
  bool prepare(ThreadContext& thread, int domain, Range segment, Duration expected);

 private:
  [[gnu::always_inline]] bool take(ThreadContext& thread, int domain, Range request, Access access,
                                   Transfer& transfer) {
    const std::size_t place = leases_.place_of(domain, request.begin);
    Region* const segment = leases_.try_lease(thread, place, request, access);
    if (segment == nullptr) [[unlikely]]
      return false;
    transfer.active = true;
    transfer.unrecorded = false;
    static_assert(kCountedPlaces < UINT16_MAX);
    transfer.counted_at = static_cast<std::uint16_t>(1 + place);
    transfer.served_by = segment;
    return true;
  }
  bool open(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer);
  /// `expected`: of a registration ahead of requests; kNever: the request needs it.
  bool register_segment(ThreadContext& thread, int domain, Range request, Duration expected);

  ArenaLeases& leases_;
  KnownDomains& domains_;
  MemoryWatch& watch_;
  AcquireBySteps& steps_;
  CountedClosing& closing_;
  std::atomic<bool> reported_{false};
};

}  // namespace pinion
