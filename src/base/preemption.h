// How much longer an operation of the calling thread took because the kernel ran something else on its core:
// the time that it was off the core, where it never gave it up itself. Sleep is left out; so is time that the
// host of a virtual machine took, where the guest cannot measure it. Ordinary code of any thread; some 0.7 us
// (docs/measurements.md), so for slow paths.
#pragma once

#include <sys/resource.h>

#include <algorithm>

#include "base/clock.h"

namespace pinion {

class PreemptionMeter {
 public:
  /// The operation begins.
  PreemptionMeter() : switches_(Switches::now()), cpu_(thread_cpu_now()), began_(monotonic_now()) {}

  /// The operation ends: the thread may lose its core in the bookkeeping that follows.
  void end() { took_ = monotonic_now() - began_; }
  /// By how much preemption lengthened it, when it would have taken `least` at least. After end().
  Duration lost(Duration least) const {
    if (took_ < kShort) return 0;
    const Switches now = Switches::now();
    if (now.forced == switches_.forced || now.own != switches_.own) return 0;
    return std::max<Duration>(0, took_ - std::max(thread_cpu_now() - cpu_, least));
  }

 private:
  // Two context switches and the other work between them take longer: a shorter call was not preempted.
  static constexpr Duration kShort = 20 * kMicrosecond;

  struct Switches {
    long forced = 0, own = 0;
    static Switches now() {
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      return {usage.ru_nivcsw, usage.ru_nvcsw};
    }
  };

  Switches switches_;
  Duration cpu_;
  Time began_;
  Duration took_ = 0;
};

}  // namespace pinion
