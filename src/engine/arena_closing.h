// The way out of the arena's registrations: segments are closed, and deregistered once the leases of their
// requests are back (arena_leases.h).
//
// Owns nothing. Ordinary code of any thread: device calls, hooks.
#pragma once

#include <cstdint>

#include "engine/arena_leases.h"
#include "engine/thread_retirement.h"

namespace pinion {

class ArenaClosing {
 public:
  ArenaClosing(ArenaLeases& leases, KnownDomains& domains, ThreadRetirement& retirement)
      : leases_(leases), domains_(domains), retirement_(retirement) {}

  /// Gives up the registrations of closed segments whose requests are over: the helper deregisters them.
  void end_closed();
  /// Deregisters them at once.
  void retire_closed(ThreadContext& thread);
  /// Closes all segments of a domain that is being emptied.
  void leave(int domain);
  /// Closes segments that nobody uses at the moment, until they hold so many bytes. They may be opened again
  /// after `rest`. False: there are none.
  bool let_go(ThreadContext& thread, std::uint64_t bytes, Duration rest);
  /// Whether segments may be opened.
  bool may_open() const { return !retirement_.stopped(); }
  /// Does what end_closed() does, after the run.
  void end_closed_after_run();

 private:
  ArenaLeases& leases_;
  KnownDomains& domains_;
  ThreadRetirement& retirement_;
};

}  // namespace pinion
