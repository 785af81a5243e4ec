// The times at which the sleeping helper looks at its rings, worked out by hand.
#include <gtest/gtest.h>

#include "retention/desk.h"

namespace pinion {
namespace {

constexpr Duration kPoll = kMillisecond;

/// Records every `gap` up to `now`.
LookSchedule dense(Duration gap, Time now) {
  LookSchedule looks(kPoll, now - 100 * gap);
  for (Time time = now - 99 * gap; time <= now; time += gap) looks.found(time);
  return looks;
}

TEST(LookSchedule, SixteenLooksInTheTypicalGap) {
  EXPECT_EQ(dense(160 * kMillisecond, 0).next(0, kNever, 1), 10 * kMillisecond);
  EXPECT_EQ(dense(kMillisecond, 0).next(0, kNever, 1), kPoll);             // no oftener than `poll`
  EXPECT_EQ(dense(256 * kMillisecond, 0).next(0, kNever, 1), 16 * kPoll);  // and never more seldom
}

TEST(LookSchedule, DeadlineComesFirst) {
  EXPECT_EQ(dense(160 * kMillisecond, 0).next(0, 3 * kMillisecond, 1), 3 * kMillisecond);
}

TEST(LookSchedule, WithNothingRegisteredHalfWayToTheDeadline) {
  const LookSchedule looks = dense(160 * kMillisecond, 0);
  EXPECT_EQ(looks.next(0, 100 * kMillisecond, 0), 50 * kMillisecond);
  EXPECT_EQ(looks.next(0, 400 * kMillisecond, 0), 80 * kMillisecond);  // half a gap at most
  EXPECT_EQ(looks.next(0, 4 * kMillisecond, 0), 4 * kMillisecond);
}

TEST(LookSchedule, WithNothingUndecidedTheSilenceSoFarIsAGap) {
  const LookSchedule looks = dense(kMillisecond, 0);
  EXPECT_EQ(looks.next(100 * kMillisecond, kSecond, 0), 150 * kMillisecond);
  EXPECT_EQ(looks.next(100 * kMillisecond, kSecond, 1), 101 * kMillisecond);
}

TEST(LookSchedule, DeepAfterASecond) {
  const LookSchedule looks = dense(kMillisecond, 0);
  EXPECT_FALSE(looks.deep(kSecond - 1));
  EXPECT_TRUE(looks.deep(kSecond));
  EXPECT_EQ(looks.next(kSecond, kNever, 1), kSecond + kLongestSleep);
}

TEST(LookSchedule, RecordsThatComeSeldomWakeTheHelperThemselves) {
  EXPECT_FALSE(dense(256 * kMillisecond, 0).deep(0));
  const LookSchedule seldom = dense(257 * kMillisecond, 0);
  EXPECT_TRUE(seldom.deep(0));
  EXPECT_EQ(seldom.next(0, kNever, 1), kLongestSleep);
  EXPECT_EQ(seldom.next(0, 3 * kMillisecond, 1), 3 * kMillisecond);
}

TEST(LookSchedule, WakeUpsWaitForTheNextBeat) {
  EXPECT_EQ(LookSchedule::at_beat(1201, 400), 1600);
  EXPECT_EQ(LookSchedule::at_beat(1200, 400), 1200);
  EXPECT_EQ(LookSchedule::at_beat(kNever, 400), kNever);
  EXPECT_EQ(LookSchedule::at_beat(1201, 0), 1201) << "a core is idle";
  const LookSchedule looks(kPoll, 0);
  EXPECT_EQ(looks.beat(true), kPoll / 2);
  EXPECT_EQ(looks.beat(false), kPoll / 4);
}

TEST(LookSchedule, UpdatesFiveTimesASecondAtFirstOnceASecondLater) {
  EXPECT_EQ(LookSchedule::between_updates(0), 200 * kMillisecond);
  EXPECT_EQ(LookSchedule::between_updates(8 * kSecond), 500 * kMillisecond);
  EXPECT_EQ(LookSchedule::between_updates(60 * kSecond), kSecond);
}

TEST(LookSchedule, WhereOnlyTheLogWaitsTheRingsSetThePace) {
  LookSchedule looks(kPoll, 0);
  EXPECT_EQ(looks.next_for_log(0, kNever), kMillisecond);
  EXPECT_EQ(looks.next_for_log(0, kPoll / 2), kPoll / 2);
  looks.pace(false);
  EXPECT_EQ(looks.next_for_log(0, kNever), 2 * kMillisecond);
  for (int look = 0; look < 20; ++look) looks.pace(false);
  EXPECT_EQ(looks.next_for_log(kSecond, kNever), kSecond + kLongestSleep);
  for (int look = 0; look < 20; ++look) looks.pace(true);
  EXPECT_EQ(looks.next_for_log(0, kNever), kPoll);
}

}  // namespace
}  // namespace pinion
