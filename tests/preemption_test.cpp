// The meter of preemption, against a thread that contends for the core.
#include "base/preemption.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace pinion {
namespace {

TEST(PreemptionMeter, SleepIsNoPreemption) {
  PreemptionMeter meter;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  meter.end();
  EXPECT_EQ(meter.lost(0), 0);
}

void stay_on_one_cpu() {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

/// Runs `measure` beside a thread that contends for its core.
template <class Measure>
void contend(Measure&& measure) {
  std::atomic<bool> over{false};
  std::thread other([&] {
    stay_on_one_cpu();
    while (!over.load(std::memory_order_relaxed)) {
    }
  });
  std::thread measured([&] {
    stay_on_one_cpu();
    measure();
    over = true;
  });
  measured.join();
  other.join();
}

TEST(PreemptionMeter, WhatAnotherThreadHadOfTheCoreIsLost) {
  contend([] {
    const Time began = monotonic_now();
    PreemptionMeter meter;
    Duration lost = 0;
    while (lost == 0) {
      meter.end();
      lost = meter.lost(0);
    }
    EXPECT_LE(lost, monotonic_now() - began);
    EXPECT_EQ(meter.lost(kSecond * 1000), 0) << "it would have taken as long anyway";
  });
}

// Else the call would seem to have taken no time at all, or less.
TEST(PreemptionMeter, PreemptionAfterTheEndIsNotLost) {
  contend([] {
    const Time began = monotonic_now();
    PreemptionMeter ended, later;
    while (monotonic_now() - began < 30 * kMicrosecond) {
    }
    ended.end();
    const Duration took = monotonic_now() - began;
    Duration lost = 0;
    while (lost == 0) {
      later.end();
      lost = later.lost(0);
    }
    EXPECT_LE(ended.lost(0), took);
  });
}

}  // namespace
}  // namespace pinion
