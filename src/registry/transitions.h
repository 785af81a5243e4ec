// The number of a region's ended registrations; threads that wait for the end sleep on it.
//
// CONCURRENCY. A waiter counts itself before it sleeps, and the kernel compares the number when it falls
// asleep. The end of a registration changes the number before it reads the count. So either it sees the
// waiter, or the waiter sees the change; it makes a system call for waiters alone. Any thread, outside of
// hooks.
#pragma once

#include <climits>
#include <cstdint>

#include "base/atomics.h"
#include "base/futex.h"

namespace pinion {

template <class Atomics = StdAtomics>
class BasicTransitions {
 public:
  std::uint32_t load() const { return number_.load(std::memory_order_acquire); }

  /// Waits until the number is no longer `seen`, a signal comes, or the time.
  void wait(std::uint32_t seen, Time until) {
    begin_wait();
    if (load() == seen) futex_wait(number_, seen, until);
    end_wait();
  }
  void end() {
    if (ended()) futex_wake(number_, INT_MAX);
  }

  // ---- the parts, for tests ----

  void begin_wait() { waiters_.fetch_add(1, std::memory_order_seq_cst); }
  void end_wait() { waiters_.fetch_sub(1, std::memory_order_relaxed); }
  /// Counts an end. True: some thread waits, or is about to.
  bool ended() {
    number_.fetch_add(1, std::memory_order_seq_cst);
    return waiters_.load(std::memory_order_seq_cst) != 0;
  }

 private:
  typename Atomics::template Atomic<std::uint32_t> number_{0};
  typename Atomics::template Atomic<std::uint32_t> waiters_{0};
};

using Transitions = BasicTransitions<>;

}  // namespace pinion
