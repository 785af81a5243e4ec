// Linux's futex with absolute times of the monotonic clock, within the process. Any thread; lock-free.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace pinion {

/// Sleeps while `word` is `value`: until a wake, a signal, or `until` (kNever: no end).
long futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, Time until);
long futex_wake(std::atomic<std::uint32_t>& word, int waiters);

}  // namespace pinion
