// The first source of leases (lease_path.h): requests within the arena, served by the registration of a whole
// segment (arena_leases.h). A request costs a range test, a subtraction and a count; it leaves no record.
//
// Owns whether the user was told of a refusal. Any thread, outside of hooks; try_lease() and give_back() are
// lock-free.
#pragma once

#include <atomic>

#include "engine/acquire_by_steps.h"
#include "engine/arena_closing.h"
#include "engine/transfer.h"

namespace pinion {

class ArenaSource {
 public:
  ArenaSource(ArenaLeases& leases, KnownDomains& domains, MemoryWatch& watch, AcquireBySteps& steps,
              ArenaClosing& closing)
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
  /// Whether this source serves the transfer.
  static bool serves(const Transfer& transfer) { return transfer.in_arena != 0; }
  void release(ThreadContext& thread, Transfer& transfer) {
    transfer.active = false;
    if (give_back(thread, transfer)) [[unlikely]]
      closing_.retire_closed(thread);
    transfer.in_arena = 0;
  }
  /// Returns the count alone. True: the segment is doomed, and ArenaClosing::retire_closed() must follow.
  [[nodiscard, gnu::always_inline]] static bool give_back(ThreadContext& thread, const Transfer& transfer) {
    const std::size_t place = transfer.in_arena - 1u;
    const Region* const segment = transfer.served_by;
    thread.arena().at[place].give_back();
    return segment->word.load().doomed();
  }
  /// For a lease that outlived the run.
  void release_after_run(Transfer& transfer);

 private:
  [[gnu::always_inline]] bool take(ThreadContext& thread, int domain, Range request, Access access,
                                   Transfer& transfer) {
    const std::size_t place = leases_.place_of(domain, request.begin);
    Region* const segment = leases_.try_lease(thread, place, request, access);
    if (segment == nullptr) [[unlikely]]
      return false;
    transfer.active = true;
    transfer.unrecorded = false;
    static_assert(kArenaPlaces <= UINT16_MAX);
    transfer.in_arena = static_cast<std::uint16_t>(1 + place);
    transfer.served_by = segment;
    return true;
  }
  bool open(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer);
  bool register_segment(ThreadContext& thread, int domain, Range request);

  ArenaLeases& leases_;
  KnownDomains& domains_;
  MemoryWatch& watch_;
  AcquireBySteps& steps_;
  ArenaClosing& closing_;
  std::atomic<bool> reported_{false};
};

}  // namespace pinion
