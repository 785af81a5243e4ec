// A spin lock for sections of a few instructions that hooks may enter too.
// Law: allocation, blocking and system calls are forbidden under one. ScopedLock<SpinLock> (base/mutex.h)
// holds one for a scope.
#pragma once

#include <sched.h>

#include "base/atomics.h"
#include "base/thread_annotations.h"

namespace pinion {

template <class Atomics = StdAtomics>
class CAPABILITY("mutex") BasicSpinLock {
 public:
  void lock() ACQUIRE() {
    for (unsigned spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      while (held_.load(std::memory_order_relaxed)) {
        Atomics::relax();
        // The holder may have been preempted: with fewer cores than threads, spinning on would only delay it.
        if ((++spins & 127) == 0) sched_yield();
      }
    }
  }
  void unlock() RELEASE() { held_.store(false, std::memory_order_release); }

 private:
  typename Atomics::template Atomic<bool> held_{false};
};

using SpinLock = BasicSpinLock<>;

}  // namespace pinion
