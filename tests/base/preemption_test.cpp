// The meter of preemption, against a thread that contends for the core.
#include "base/preemption.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/contend.h"

namespace pinion {
namespace {

TEST(PreemptionMeter, SleepIsNoPreemption) {
  PreemptionMeter meter;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  meter.end();
  EXPECT_EQ(meter.lost(0), 0);
}

TEST(PreemptionMeter, WhatAnotherThreadHadOfTheCoreIsLost) {
  test::contend([] {
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
  test::contend([] {
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
