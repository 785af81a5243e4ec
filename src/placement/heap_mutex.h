// The mutexes of this room, and what a thread knows of those that it holds. They are leaves: under one, no
// other lock is taken but a further one of this room, no hook runs, and nothing is allocated.
//
// A signal handler that interrupts a thread under such a mutex must take none. A collector may have stopped
// the thread that holds one; comes_free() waits for about 100 ms. The thread that forks holds all of them,
// and passes through them until the fork is over.
#pragma once

#include <mutex>
#include <new>

#include "base/mutex.h"

namespace pinion {

/// Mutexes of this room that the thread holds, or is about to take.
inline constinit thread_local unsigned t_held_mutexes = 0;
inline bool is_inside_heap() { return t_held_mutexes != 0; }
/// The thread forks, and holds every mutex of the process's heap.
inline constinit thread_local bool t_forking = false;

void pause_before_try(int number);
/// Whether the condition comes to hold within about 100 ms.
template <class Condition>
bool holds_soon(Condition&& condition) {
  constexpr int kTries = 1100;
  for (int i = 0; i < kTries; ++i) {
    if (condition()) return true;
    pause_before_try(i + 1);
  }
  return false;
}

class CAPABILITY("mutex") HeapMutex {
 public:
  constexpr HeapMutex() = default;
  HeapMutex(const HeapMutex&) = delete;
  HeapMutex& operator=(const HeapMutex&) = delete;

  void lock() ACQUIRE() NO_THREAD_SAFETY_ANALYSIS {
    ++t_held_mutexes;
    if (!t_forking) mutex_.lock();
  }
  void unlock() RELEASE() NO_THREAD_SAFETY_ANALYSIS {
    if (!t_forking) mutex_.unlock();
    --t_held_mutexes;
  }
  /// Whether the mutex is free, or comes free soon.
  bool comes_free();

  // The heap calls these around a fork, with t_held_mutexes set.
  void lock_for_fork() ACQUIRE() { mutex_.lock(); }
  void unlock_after_fork() RELEASE() { mutex_.unlock(); }
  void free_in_child() { mutex_.free_in_child(); }

 private:
  Mutex mutex_;
};

using HeapLock = ScopedLock<HeapMutex>;

}  // namespace pinion
