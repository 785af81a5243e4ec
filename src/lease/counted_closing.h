// The way out of registrations whose leases threads count for themselves (lease_count.h): segments of the
// arena, and regions that threads share. They are closed, and deregistered or ordinary regions once those
// leases are back.
//
// Owns nothing. Ordinary code of any thread: device calls, hooks.
#pragma once

#include <cstdint>

#include "lease/arena_leases.h"
#include "lease/thread_retirement.h"
#include "lease/transfer.h"

namespace pinion {

class CountedClosing {
 public:
  CountedClosing(ArenaLeases& leases, KnownDomains& domains, ThreadRetirement& retirement)
      : leases_(leases), domains_(domains), retirement_(retirement) {}

  /// Returns a counted lease.
  void release(ThreadContext& thread, Transfer& transfer) {
    transfer.active = false;
    if (give_back(thread, transfer)) [[unlikely]]
      retire_closed(thread);
    transfer.counted_at = 0;
  }
  /// Returns the count alone. True: what it counted for is closed, and retire_closed() must follow.
  [[nodiscard, gnu::always_inline]] static bool give_back(ThreadContext& thread, const Transfer& transfer) {
    const std::uint16_t at = transfer.counted_at;
    thread.counted().at[at - 1u].give_back();
    const Region& region = *transfer.served_by;
    return region.word.load().doomed() ||
           region.shared.at.load(std::memory_order_acquire) != (transfer.in_arena() ? 0 : at);
  }
  /// For a lease that outlived the run.
  void release_after_run(Transfer& transfer);

  /// Gives up the registrations of what is closed, as far as its leases are back: the helper deregisters
  /// them. For the helper, in a passage of the fork gate.
  void end_closed();
  /// Closes the regions that are to be shared no more, and ends what is closed. As end_closed().
  void look(Time now);
  /// Deregisters them at once.
  void retire_closed(ThreadContext& thread);
  /// Closes all that a domain has, which is being emptied.
  void leave(int domain);
  /// Closes what nobody uses at the moment: shared regions, which are ordinary ones then, and segments until
  /// they hold so many bytes, which may be opened again after `rest`. False: there is none.
  bool let_go(ThreadContext& thread, std::uint64_t bytes, Duration rest);
  /// Whether segments may be opened.
  bool may_open() const { return !retirement_.stopped(); }

 private:
  void end_segments();

  ArenaLeases& leases_;
  KnownDomains& domains_;
  ThreadRetirement& retirement_;
};

}  // namespace pinion
