// Moments for waits of the kernel, which uses CLOCK_MONOTONIC only. A clock that reads the cycle counter
// drifts from it, because the counter's rate is measured once. Any thread.
#pragma once

#include "base/clock.h"

namespace pinion {

/// Translates a moment of `clock` to CLOCK_MONOTONIC.
inline Time on_monotonic(Clock& clock, Time moment) {
  return moment == kNever ? kNever : monotonic_now() + (moment - clock.now());
}

}  // namespace pinion
