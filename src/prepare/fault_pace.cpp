#include "prepare/fault_pace.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "device/kernel/fault_in.h"

namespace pinion {

Error FaultPace::fault_in(Range pages, bool for_writing) {
  step_began_ = 0;
  return pinion::fault_in(pages, for_writing, [this] { return next_step(); });
}

std::size_t FaultPace::next_step() {
  Time now = monotonic_now();
  if (step_began_ != 0) learn(now);
  if (now < crowded_until_) now = rest(now);
  if (MapChanges::are_seen())
    now = give_way(now);
  else if (pauses_)
    now = pause(now);
  step_began_ = now;
  return step_;
}

/// Hugepages come whole, so that most of their steps are over at once: these become longer.
void FaultPace::learn(Time now) {
  const Duration took = now - step_began_;
  if (took > kLostCore) crowded_until_ = now + kCrowded;
  if (took > kLongStep)
    step_ = std::max(step_ / 2, kLeastStep);
  else if (took < kLongStep / 4)
    step_ = std::min(step_ * 2, kMostStep);
}

/// A thread that sleeps begins a new time slice.
Time FaultPace::rest(Time now) {
  if (now - rested_ < kRun) return now;
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  return rested_ = monotonic_now();
}

Time FaultPace::give_way(Time now) {
  if (!MapChanges::under_way() || now < insists_until_) return now;
  const Time end = now + kPatience;
  const Time soon = now + kPatience / 10;
  while (MapChanges::under_way() && now < end) {
    // The call may need this core. A sleep lasts longer than most calls.
    if (now < soon)
      ::sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    now = monotonic_now();
  }
  if (now >= end) insists_until_ = now + kInsist;
  return now;
}

Time FaultPace::pause(Time now) {
  if (now < next_pause_) return now;
  const Time since = now % kPeriod;
  if (since < kPause) std::this_thread::sleep_for(std::chrono::nanoseconds(kPause - since));
  now = monotonic_now();
  next_pause_ = now - now % kPeriod + kPeriod;
  return now;
}

}  // namespace pinion
