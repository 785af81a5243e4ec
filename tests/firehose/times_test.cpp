// The typical time of an operation: one long one decides nothing, not even the first.
#include <gtest/gtest.h>

#include "firehose/operation_times.h"

namespace pinion::firehose {
namespace {

constexpr Duration kUsual = 40 * kMicrosecond, kLong = 2 * kMillisecond;

TEST(FirehoseTimes, OneLongOneAmongTheFirstCountsForNothing) {
  for (unsigned long_one = 0; long_one < TypicalTime::kFirst; ++long_one) {
    TypicalTime time;
    EXPECT_EQ(time.get(), 0);
    for (unsigned i = 0; i < TypicalTime::kFirst; ++i) {
      EXPECT_EQ(time.sure(), 0) << "one could decide";
      time.add(i == long_one ? kLong : kUsual + i);
      EXPECT_GT(time.get(), 0);
    }
    EXPECT_NEAR(time.sure(), kUsual, TypicalTime::kFirst);
  }
}

TEST(FirehoseTimes, FollowTheMedian) {
  TypicalTime time;
  for (unsigned i = 0; i < TypicalTime::kFirst; ++i) time.add(kUsual);
  time.add(kLong);
  EXPECT_LE(time.get(), kUsual + kUsual / 16 + 1);
  for (unsigned i = 0; i < 100; ++i) time.add(kLong);
  EXPECT_NEAR(time.get(), kLong, kLong / 8);
  for (unsigned i = 0; i < 300; ++i) time.add(i % 3 == 0 ? kLong : kUsual);
  EXPECT_NEAR(time.get(), kUsual, kUsual / 4) << "most are short";
}

TEST(FirehoseTimes, WhatWaitsForAConnectionIsNotMeasured) {
  OperationTimes times(2);
  EXPECT_EQ(times.begin(1, 77), 0U);
  times.met(1);
  EXPECT_EQ(times.begin(1, 77), 77U);
  EXPECT_EQ(times.begin(0, 77), 0U) << "another peer";
}

}  // namespace
}  // namespace pinion::firehose
