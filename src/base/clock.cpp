#include "base/clock.h"

#include <time.h>

namespace pinion {

Time monotonic_now() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<Time>(ts.tv_sec) * kSecond + ts.tv_nsec;
}

Duration thread_cpu_now() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<Duration>(ts.tv_sec) * kSecond + ts.tv_nsec;
}

namespace {

struct Pair {
  Ticks ticks;
  Time time;
};

// The tightest of several bracketed reads: an interrupt between the two counters would skew the ratio.
Pair paired_read() {
  Pair best{};
  Ticks width = ~Ticks{0};
  for (int i = 0; i < 16; ++i) {
    const Ticks before = ticks_now();
    const Time time = monotonic_now();
    const Ticks after = ticks_now();
    if (after - before < width) {
      width = after - before;
      best = {before + width / 2, time};
    }
  }
  return best;
}

constexpr Duration kLeast = 2 * kMillisecond;
/// The machine may have slept in a longer time: then the counter and the clock went apart.
constexpr Duration kMost = 10 * kSecond;

const Pair at_load = paired_read();

/// Most processes have run for long enough, and no time is spent.
Calibration measure() {
  Pair first = at_load, last = paired_read();
  if (last.time - first.time > kMost) first = last;
  while (last.time - first.time < kLeast) last = paired_read();
  return {first.ticks, first.time,
          static_cast<double>(last.time - first.time) / static_cast<double>(last.ticks - first.ticks)};
}

}  // namespace

const Calibration& calibration() {
  static const Calibration value = measure();
  return value;
}

}  // namespace pinion
