// Measures how much longer an operation of the calling thread took because the kernel ran something else on
// its core. It counts time off the core that the thread did not give up itself. Sleep is left out; so is time
// that the host of a virtual machine took, where the guest cannot measure it. Ordinary code of any thread;
// some 0.3 us (evidence-measured.md), so for slow paths.
#pragma once

#include <sys/resource.h>

#include <algorithm>

#include "base/clock.h"

namespace pinion {

/// Wake-up delay caused by other threads; `late`: the time from the moment that a thread could wake until it
/// ran. On an idle core it runs within the time that is left out.
constexpr Duration lost_waking(Duration late) {
  constexpr Duration kPrompt = 50 * kMicrosecond;
  return std::max<Duration>(0, late - kPrompt);
}

class PreemptionMeter {
 public:
  /// The operation begins. The thread's CPU clock is left alone: to read it makes the kernel look at the
  /// thread's slice, and after a sched_yield(), as MPI libraries call while they wait, give its core away.
  PreemptionMeter() : began_(monotonic_now()), before_(Usage::now()) {}

  /// The operation ends: the thread may lose its core in the bookkeeping that follows.
  void end() { took_ = monotonic_now() - began_; }
  /// Returns by how much preemption lengthened the operation, if it takes `least` at least. Call it after
  /// end(). The kernel books CPU time at its ticks, so the result is up to one tick short.
  Duration lost(Duration least) const {
    if (took_ < kShort) return 0;
    const Usage now = Usage::now();
    if (now.forced == before_.forced || now.own != before_.own) return 0;
    return std::max<Duration>(0, took_ - std::max(thread_cpu_now() - before_.booked, least));
  }
  /// Whether the kernel has taken the core from the thread since the beginning.
  bool forced() const { return Usage::now().forced != before_.forced; }

 private:
  // Two context switches and the other work between them take longer: a shorter call was not preempted.
  static constexpr Duration kShort = 20 * kMicrosecond;

  struct Usage {
    long forced = 0, own = 0;  ///< context switches
    Duration booked = 0;       ///< CPU time
    static Usage now() {
      rusage usage{};
      ::getrusage(RUSAGE_THREAD, &usage);
      return {usage.ru_nivcsw, usage.ru_nvcsw, duration(usage.ru_utime) + duration(usage.ru_stime)};
    }
    static Duration duration(const timeval& time) {
      return time.tv_sec * kSecond + time.tv_usec * kMicrosecond;
    }
  };

  Time began_;
  Usage before_;
  Duration took_ = 0;
};

}  // namespace pinion
