// A mutex of the process's, which a forked child finds free: there the thread that holds it does not exist
// (base/fork_generation.h). What it guards may be half changed then, and is made anew by a fork handler where
// that matters. For namespace scope, and for objects that last as long as the process.
#pragma once

#include "base/fork_generation.h"
#include "base/mutex.h"

namespace pinion {

class CAPABILITY("mutex") ProcessMutex {
 public:
  constexpr ProcessMutex() = default;
  ProcessMutex(const ProcessMutex&) = delete;
  ProcessMutex& operator=(const ProcessMutex&) = delete;

  void lock() ACQUIRE() NO_THREAD_SAFETY_ANALYSIS {
    free_after_fork();
    mutex_.lock();
  }
  void unlock() RELEASE() NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) NO_THREAD_SAFETY_ANALYSIS {
    free_after_fork();
    return mutex_.try_lock();
  }

 private:
  void free_after_fork() {
    renewed_.after_fork([this] { mutex_.free_in_child(); });
  }

  Mutex mutex_;
  RenewedInChild renewed_;
};

using ProcessLock = ScopedLock<ProcessMutex>;

}  // namespace pinion
