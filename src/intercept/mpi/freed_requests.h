// Requests that the program freed while their operation was under way. MPI completes them silently, and a
// question about them could run the program's error handler. So their leases stay until their memory goes
// away, the program disconnects a communicator, or the run ends. Of more than a few hundred the oldest go:
// such leases are books only; MPI transfers by registrations of its own. Any thread; one mutex. Never from
// hooks.
#pragma once

#include <atomic>
#include <deque>

#include "base/mutex.h"
#include "intercept/mpi/operation.h"

namespace pinion::mpi {

class FreedRequests {
 public:
  static constexpr std::size_t kMost = 256;

  static FreedRequests& instance();

  void keep(ThreadContext& thread, LeasePath& leases, Operation&& operation);
  /// Returns the leases of memory that went away; called inside any MPI call of the program.
  static void poll(ThreadContext& thread, LeasePath& leases) {
    if (kept_.load(std::memory_order_relaxed) > 0) [[unlikely]]
      instance().release_gone(thread, leases);
  }
  /// Returns all leases.
  void finish(ThreadContext& thread, LeasePath& leases);

 private:
  void release_gone(ThreadContext& thread, LeasePath& leases);

  Mutex mutex_;
  std::deque<Operation> freed_ GUARDED_BY(mutex_);  ///< oldest first
  // Static: each completion reads only this.
  static inline constinit std::atomic<std::size_t> kept_{0};
};

}  // namespace pinion::mpi
