// Tells a forked child from its parent: what a thread of the parent's had locked, or begun to make, has no
// thread that would ever let it go. Mutexes of the process and guards of static variables compare the number
// here with the one of their last use, and count as free where a fork lies between.
//
// Owns the number. Written by a fork handler in the child alone, before others of ours run; read by any
// thread, also in hooks. A child of vfork or clone with shared memory shares it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace pinion {

/// The number of forks from the first process with Pinion down to this one.
extern std::atomic<std::uint32_t> fork_generation;

/// Remembers in which process something was last in order. A member of it.
class RenewedInChild {
 public:
  constexpr RenewedInChild() = default;

  /// Calls `renew` if a fork has passed since the last call. Any thread; one renews, and others wait for it.
  template <class Renew>
  void after_fork(Renew renew) {
    const std::uint32_t now = fork_generation.load(std::memory_order_relaxed);
    while (made_in_.load(std::memory_order_acquire) != now) [[unlikely]] {
        if (!begins(now)) {
          sched_yield();
          continue;
        }
        renew();
        made_in_.store(now, std::memory_order_release);
      }
  }

 private:
  static constexpr std::uint32_t kBusy = std::uint32_t{1} << 31;

  bool begins(std::uint32_t now) {
    std::uint32_t seen = made_in_.load(std::memory_order_relaxed);
    return seen != now && seen != (now | kBusy) &&
           made_in_.compare_exchange_strong(seen, now | kBusy, std::memory_order_acquire);
  }

  std::atomic<std::uint32_t> made_in_{0};
};

}  // namespace pinion
