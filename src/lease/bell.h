// Wakes the helper. Owns the word that the helper sleeps on.
// pushed(): application threads, after a record. wake(): any thread, also in hooks. prepare(), sleep() and
// awake(): the helper alone. Lock-free; a system call only where the helper sleeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/futex.h"

namespace pinion {

class HelperBell {
 public:
  enum Sleep : std::uint32_t {
    none = 0,
    light = 1,  ///< the helper looks at the rings soon
    alert = 2,  ///< a transfer that found no registration wakes the helper
    deep = 3,   ///< the next record does
  };

  /// A record lies in a ring, which is `fill` of `capacity` full. `unforeseen()`: it is of a transfer that
  /// had to register.
  template <class F>
  void pushed(std::size_t fill, std::size_t capacity, F&& unforeseen) {
    const std::uint32_t sleep = sleep_.load(std::memory_order_relaxed);
    const bool filling = fill >= capacity * 3 / 4;
    if (sleep <= light && !filling) [[likely]]
      return;
    if (sleep == deep || (sleep != none && filling) || (sleep == alert && unforeseen())) wake();
  }
  bool asleep() const { return sleep_.load(std::memory_order_relaxed) != none; }
  void wake();

  /// Prepares the helper's last look for work: work that is added after it wakes the helper.
  void prepare(Sleep sleep) { sleep_.store(sleep, std::memory_order_seq_cst); }
  /// Sleeps until a wake() since prepare(), or the time.
  void sleep(Sleep sleep, Time until) { futex_wait(sleep_, sleep, until); }
  void awake() { sleep_.store(none, std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<std::uint32_t> sleep_{none};
};

}  // namespace pinion
