// A device's entries for its live registrations, by handle. Handles count upwards and never come
// back, so a stale one is recognised. Owns the entries; any thread; one short mutex inside. Allocates: never
// from a hook.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"

namespace pinion {

template <class T>
class HandleTable {
 public:
  /// Handles below `first` belong to an earlier table (the parent's, after a fork) and are ignored silently.
  explicit HandleTable(std::uint64_t first = 1) : first_(first), next_(first) {}

  std::uint64_t add(T entry) {
    const MutexLock lock(mutex_);
    entries_.emplace(next_, std::move(entry));
    return next_++;
  }

  /// Removes and returns the entry; empty for an unknown handle, at which debug builds stop: it is the
  /// caller's mistake.
  std::optional<T> take(std::uint64_t handle) {
    const MutexLock lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) {
      assert(handle < first_ && "deregistration of a key that is not registered");
      return std::nullopt;
    }
    std::optional<T> entry(std::move(found->second));
    entries_.erase(found);
    return entry;
  }

  /// Puts back an entry that take() has returned.
  void restore(std::uint64_t handle, T entry) {
    const MutexLock lock(mutex_);
    entries_.emplace(handle, std::move(entry));
  }

  /// Removes any one entry; nothing when the table is empty.
  std::optional<T> take_any() {
    const MutexLock lock(mutex_);
    if (entries_.empty()) return std::nullopt;
    std::optional<T> entry(std::move(entries_.begin()->second));
    entries_.erase(entries_.begin());
    return entry;
  }

  /// For the successor of this table after a fork, where the mutex may be held for ever: reads without it.
  std::uint64_t next_after_fork() const NO_THREAD_SAFETY_ANALYSIS { return next_; }

 private:
  const std::uint64_t first_;
  Mutex mutex_;
  std::uint64_t next_ GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, T> entries_ GUARDED_BY(mutex_);
};

}  // namespace pinion
