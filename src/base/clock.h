// Time: the cycle counter for the critical path, nanoseconds everywhere else. Clocks for retention are real,
// or virtual in tests and the simulator. The calibration is written once, before any reader (calibrate() at
// engine start), and then only read.
#pragma once

#include <cstdint>

namespace pinion {

using Ticks = std::uint64_t;  ///< raw cycle-counter value
using Time = std::int64_t;    ///< nanoseconds since the epoch of CLOCK_MONOTONIC
using Duration = std::int64_t;

constexpr Time kNever = INT64_MAX;
constexpr Duration kMicrosecond = 1000;
constexpr Duration kMillisecond = 1000 * kMicrosecond;
constexpr Duration kSecond = 1000 * kMillisecond;

/// The nearest whole number of ns, halves away from zero: std::llround without its call.
inline Duration nearest(double ns) {
  const auto whole = static_cast<Duration>(ns);
  const double rest = ns - static_cast<double>(whole);
  return whole + (rest >= 0.5) - (rest <= -0.5);
}

/// Reads the cycle counter (x86-64: TSC, aarch64: the virtual counter). Not serializing: a few ns of slack
/// are fine for prediction. Callable from anywhere.
inline Ticks ticks_now() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  Ticks t;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#else
#error "no cycle counter known for this processor"
#endif
}

/// CLOCK_MONOTONIC in ns.
Time monotonic_now();
/// CPU time of the calling thread.
Duration thread_cpu_now();

/// Relation of the cycle counter to CLOCK_MONOTONIC, measured against it.
struct Calibration {
  Ticks base_ticks = 0;
  Time base_time = 0;
  double ns_per_tick = 1.0;

  Time to_time(Ticks t) const {
    return base_time +
           static_cast<Time>(static_cast<double>(static_cast<std::int64_t>(t - base_ticks)) * ns_per_tick);
  }
  Duration to_duration(Ticks t) const { return static_cast<Duration>(static_cast<double>(t) * ns_per_tick); }
  Ticks to_ticks(Duration d) const { return static_cast<Ticks>(static_cast<double>(d) / ns_per_tick); }
};

/// Measures the calibration the first time it is called, since this library was loaded: over 2 ms at least,
/// for which it waits where need be. Thread-safe; later calls return the same.
const Calibration& calibration();

/// The clock that drives registry and retention: real time or the simulator's.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() = 0;
  /// The instant as records and uses are stamped with it: the cycle counter, or its stand-in. Equal to the
  /// reading of the critical path, so that both may be compared; not for the critical path itself.
  virtual Ticks ticks() = 0;
  /// The value of ticks() at that time.
  virtual Ticks ticks_at(Time time) { return static_cast<Ticks>(time); }
};

class RealClock final : public Clock {
 public:
  Time now() override { return calibration().to_time(ticks_now()); }
  Ticks ticks() override { return ticks_now(); }
  Ticks ticks_at(Time time) override {
    const Calibration& scale = calibration();
    return scale.base_ticks + scale.to_ticks(time - scale.base_time);
  }
};

/// Advanced by hand; single-threaded use (tests, simulator). Its ticks are its nanoseconds.
class VirtualClock final : public Clock {
 public:
  Time now() override { return now_; }
  Ticks ticks() override { return static_cast<Ticks>(now_); }
  void advance(Duration d) { now_ += d; }
  void set(Time t) { now_ = t; }

 private:
  Time now_ = 0;
};

}  // namespace pinion
