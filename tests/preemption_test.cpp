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
  const PreemptionMeter meter;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
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

TEST(PreemptionMeter, WhatAnotherThreadHadOfTheCoreIsLost) {
  std::atomic<bool> over{false};
  const auto work = [&] {
    stay_on_one_cpu();
    while (!over.load(std::memory_order_relaxed)) {
    }
  };
  std::thread other(work);
  std::thread measured([&] {
    stay_on_one_cpu();
    const Time began = monotonic_now();
    const PreemptionMeter meter;
    Duration lost = 0;
    while (lost == 0) lost = meter.lost(0);
    EXPECT_LE(lost, monotonic_now() - began);
    EXPECT_EQ(meter.lost(kSecond * 1000), 0) << "it would have taken as long anyway";
    over = true;
  });
  measured.join();
  other.join();
}

}  // namespace
}  // namespace pinion
