// The goal for the peak: a limit that finds itself, and gives way. Registrations stay below the most bytes
// that were registered so far, and let idle regions go for that. They exceed it where idle regions are too
// few, or have cost as much time as was granted. It begins at nothing: the first peak is what transfers need
// at a time. Nothing is bounced for it, and nobody waits.
//
// Any thread; the helper says whether it is pursued and grants time (retention/desk.h), which is spent under
// a domain's slow lock. Times are in pages that take as long to register.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace pinion {

class PeakGoal {
 public:
  static constexpr std::uint64_t kAny = UINT64_MAX;

  /// At the beginning there is no goal.
  void pursue(bool pursued) { pursued_.store(pursued, std::memory_order_relaxed); }
  bool pursued() const { return pursued_.load(std::memory_order_relaxed); }

  /// The most bytes to register while idle regions can go for that; kAny: there is no goal, or nothing is
  /// granted.
  std::uint64_t bytes() const {
    return pursued() && granted_.load(std::memory_order_relaxed) > 0 ? bytes_.load(std::memory_order_relaxed)
                                                                     : kAny;
  }
  /// Notes that so many bytes are, or have to be, registered at a time. Callers exclude each other.
  void raise_to(std::uint64_t bytes) {
    if (bytes > bytes_.load(std::memory_order_relaxed)) bytes_.store(bytes, std::memory_order_relaxed);
  }

  /// Sets what letting regions go for the goal may cost from now on.
  void grant(double pages) {
    granted_.store(static_cast<std::int64_t>(std::min(pages, 1e18)), std::memory_order_relaxed);
  }
  /// Notes that a region has gone that takes so much to register again.
  void spend(double pages) {
    granted_.fetch_sub(static_cast<std::int64_t>(pages) + 1, std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> pursued_{false};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::int64_t> granted_{0};
};

}  // namespace pinion
