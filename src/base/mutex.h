// Mutexes whose guarded fields Clang checks (base/thread_annotations.h). They are the standard library's, and
// cost the same.
//
//   class Table {
//    public:
//     void add(int row) EXCLUDES(mutex_) {
//       const MutexLock lock(mutex_);
//       rows_.push_back(row);
//       trim();
//     }
//    private:
//     void trim() REQUIRES(mutex_);
//     Mutex mutex_;
//     std::vector<int> rows_ GUARDED_BY(mutex_);
//   };
//
// To try: if (!mutex_.try_lock()) return; const MutexLock lock(mutex_, std::adopt_lock);
// To wait: while (!done_) changed_.wait(mutex_);  (a loop: Clang checks no lambda of a caller that holds the
// lock) A function-local or namespace-scope mutex may be `constinit`. Memory hooks take none that ordinary
// code holds while it allocates; SpinLock (base/spin_lock.h) is theirs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "base/thread_annotations.h"

namespace pinion {

class CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

  /// Makes the mutex free in a forked child, where the thread that holds it does not exist.
  void free_in_child() NO_THREAD_SAFETY_ANALYSIS { new (&mutex_) std::mutex; }

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

/// A mutex that readers share.
class CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  void lock_shared() ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() RELEASE_SHARED() { mutex_.unlock_shared(); }

  /// Makes the mutex free in a forked child, where the threads that hold it do not exist.
  void free_in_child() NO_THREAD_SAFETY_ANALYSIS { new (&mutex_) std::shared_mutex; }

 private:
  std::shared_mutex mutex_;
};

/// Holds a Mutex, a SharedMutex (exclusively) or a SpinLock to the end of the scope.
template <class Lockable>
class SCOPED_CAPABILITY ScopedLock {
 public:
  explicit ScopedLock(Lockable& lock) ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  /// Takes over a lock that the thread holds.
  ScopedLock(Lockable& lock, std::adopt_lock_t) REQUIRES(lock) : lock_(lock) {}
  ~ScopedLock() RELEASE() {
    if (held_) lock_.unlock();
  }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

  /// Lets the lock go before the end of the scope; relock() takes it again.
  void unlock() RELEASE() {
    held_ = false;
    lock_.unlock();
  }
  void relock() ACQUIRE() {
    lock_.lock();
    held_ = true;
  }

 private:
  Lockable& lock_;
  bool held_ = true;
};

using MutexLock = ScopedLock<Mutex>;
using WriterLock = ScopedLock<SharedMutex>;

/// Holds a SharedMutex beside other readers to the end of the scope.
class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) { mutex_.lock_shared(); }
  ~ReaderLock() RELEASE_GENERIC() { mutex_.unlock_shared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

/// Waits for a change that another thread makes under the mutex. It may return early: wait in a loop.
class ConditionVariable {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(Mutex& mutex, const std::chrono::time_point<Clock, Duration>& end)
      REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, end);
    lock.release();
    return status;
  }
  template <class Rep, class Period>
  std::cv_status wait_for(Mutex& mutex, const std::chrono::duration<Rep, Period>& time) REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + time);
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace pinion
