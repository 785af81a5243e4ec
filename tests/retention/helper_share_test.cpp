// The helper's share: the ledger by itself, and its bound on programs where no core is idle.
#include "retention/helper_share.h"

#include <gtest/gtest.h>

#include "support/virtual_helper.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond;

TEST(HelperShare, CountsTimeOfTheRunWhereNoCoreIsIdle) {
  HelperShare share({.share = 0.02, .delay = 4, .core_idle = true}, kSecond);
  share.used(30 * ms, 0, false, 2 * kSecond);
  EXPECT_EQ(share.spent(), 0) << "a core was idle";
  EXPECT_EQ(share.allowed(), HelperShare::kLeastCredit);
  EXPECT_FALSE(share.binds());
  EXPECT_EQ(share.least_sleep(), 0);
  share.set_core_idle(false);
  share.used(32 * ms, 0, false, 3 * kSecond);
  EXPECT_EQ(share.spent(), 8 * ms) << "four ranks on two cores lose it";
  EXPECT_EQ(share.allowed(), HelperShare::kLeastCredit + 20 * ms);
}

TEST(HelperShare, LearningMayCostWhatRegisteringEverythingOnceDoes) {
  HelperShare share({.share = 0.02}, 0);
  share.registering_once(ms);
  EXPECT_EQ(share.allowed(), HelperShare::kLeastCredit);
  share.registering_once(40 * ms);
  EXPECT_EQ(share.allowed(), 100 * ms);
  share.used(0, 0, false, kSecond);
  EXPECT_EQ(share.allowed(), 120 * ms);
}

TEST(HelperShare, PeersAndOversubscribedCoresWait) {
  EXPECT_EQ(HelperShare::delay_of(1, 1), 1);
  EXPECT_EQ(HelperShare::delay_of(1, 8), 1);
  EXPECT_EQ(HelperShare::delay_of(2, 2), 2);
  EXPECT_EQ(HelperShare::delay_of(2, 8), 2) << "threads of the ranks keep the cores busy";
  EXPECT_EQ(HelperShare::delay_of(4, 2), 4);
}

TEST(HelperShare, RefusesWorkThatDoesNotFitBesideWorkSetAside) {
  HelperShare share({.share = 0.01}, 0);
  EXPECT_TRUE(share.affords(9 * ms, 1e9));
  EXPECT_FALSE(share.affords(11 * ms, 1e9));
  share.used(0, 5 * ms, false, 0);
  EXPECT_FALSE(share.affords(6 * ms, 1e9));
  EXPECT_TRUE(share.affords(4 * ms, 1e9));
}

TEST(HelperShare, WhatItDoesInPlaceOfThreadsRaisesTheBound) {
  HelperShare share({.share = 0.01, .core_idle = true}, 0);
  share.did_for_threads(5 * ms);
  EXPECT_EQ(share.allowed(), HelperShare::kLeastCredit) << "where nothing is spent, nothing is added";
  share.set_core_idle(false);
  share.used(10 * ms, 0, false, 0);
  EXPECT_TRUE(share.resting());
  share.did_for_threads(5 * ms);
  share.used(10 * ms, 0, false, 0);
  EXPECT_EQ(share.allowed(), HelperShare::kLeastCredit + 5 * ms);
  EXPECT_FALSE(share.resting());
  share.did_for_threads(-5 * ms);
  EXPECT_EQ(share.allowed(), HelperShare::kLeastCredit) << "it was in vain";
}

TEST(HelperShare, ThePriceRisesAsTheRestShrinks) {
  HelperShare share({.share = 0}, 0);
  const auto least = [&] {  // seconds of holding everything, for 100 us of work
    double freed = 1e-9;
    while (!share.affords(100 * kMicrosecond, freed)) freed *= 2;
    return freed;
  };
  double before = 0;
  for (Duration used = 0; used < 9800 * kMicrosecond; used += 700 * kMicrosecond) {
    share.used(used, 0, false, 0);
    EXPECT_GE(least(), before);
    before = least();
  }
  EXPECT_GT(before, 4e-4) << "four times the work";
}

TEST(HelperShare, LooksTakeAQuarterOfTheShareAtMost) {
  HelperShare share({.share = 0.01, .delay = 4}, 0);
  Duration cpu = 0;
  for (int look = 0; look < 200; ++look) share.used(cpu += 10 * kMicrosecond, 0, true, look * ms * 10);
  EXPECT_NEAR(static_cast<double>(share.least_sleep()), 16.0 * ms, 0.4 * ms);  // 40 us of the run by 0.25 %
}

TEST(HelperShare, RestsUntilATenthIsThereAgain) {
  HelperShare share({.share = 0.01}, 0);
  share.used(10 * ms, 0, false, 0);
  EXPECT_TRUE(share.resting());
  share.used(10 * ms, 0, true, 50 * ms);
  EXPECT_TRUE(share.resting()) << "a twentieth";
  share.used(10 * ms, 0, true, 120 * ms);
  EXPECT_FALSE(share.resting());
  share.used(12 * ms, 0, true, 120 * ms);
  EXPECT_TRUE(share.resting());
  share.set_core_idle(true);
  share.used(12 * ms, 0, true, 120 * ms);
  EXPECT_FALSE(share.resting());
}

TEST(HelperShare, OffRefusesNothing) {
  HelperShare share({.share = HelperShare::kUnbounded}, 0);
  share.used(kSecond, 0, false, 1);
  EXPECT_TRUE(share.affords(kSecond, 0));
  EXPECT_FALSE(share.resting());
  EXPECT_EQ(share.least_sleep(), 0);
  EXPECT_EQ(share.allowed(), 0);
  EXPECT_EQ(share.spent(), kSecond);
}

/// Work of the helper and mean registered bytes, of `buffers` used in turn by a thread that computes
/// for `compute` between them, four ranks on two cores.
struct Outcome {
  Duration allowed, spent;
  double mean;
  std::uint64_t late;
  Duration lost, may_lose;  ///< of the threads' time
};
Outcome under(double share, Duration compute, std::size_t pages,
              TimeBudget::Settings time_budget = {.share = TimeBudget::kUnbounded}) {
  constexpr int kBuffers = 4, kTurns = 400;
  test::VirtualHelper::Settings settings;
  settings.predictor = "adaptive";
  settings.helper_share = {.share = share, .delay = 4};
  settings.time_budget = time_budget;
  settings.wake_cost = 5 * kMicrosecond;
  settings.record_cost = kMicrosecond;
  settings.own_core = false;
  settings.poll = ms;
  test::VirtualHelper helper(settings);
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < kBuffers; ++i)
      helper.add({.site = i,
                  .range = test::virtual_pages(i * pages, pages),
                  .compute = compute,
                  .duration = compute / 10});
  helper.run();
  const runlog::Counters counters = helper.counters();
  return {static_cast<Duration>(counters.helper_share_ns),
          static_cast<Duration>(counters.helper_share_spent_ns),
          helper.registered().mean(kSecond, helper.now()) / helper.leave_pinned().mean(kSecond, helper.now()),
          counters.late,
          counters.budget_spent_ns,
          static_cast<Duration>(counters.budget_ns)};
}

TEST(HelperShare, BoundsWorkOnDenseAndOnLargeTransfers) {
  for (const auto& [compute, pages] :
       {std::pair{20 * kMicrosecond, std::size_t{1}}, std::pair{200 * kMicrosecond, std::size_t{16}},
        std::pair{ms, std::size_t{256}}, std::pair{10 * ms, std::size_t{4096}}}) {
    double mean = 1.1;
    for (const double share : {0.0, 0.01, 0.03, 0.1}) {
      const Outcome outcome = under(share, compute, pages);
      EXPECT_LE(outcome.spent, outcome.allowed + 2 * ms) << share << " of " << pages << " pages";
      EXPECT_LE(outcome.mean, mean + 0.015) << share << " of " << pages << " pages";
      mean = outcome.mean;
    }
  }
}

// Regions stay that the share cannot register again, where no transfer may wait.
TEST(HelperShare, ARestLeavesNoRegionForTheThreadToRegister) {
  const Outcome outcome = under(0.005, 200 * kMicrosecond, 16, {.share = 0.0001, .credit = 0});
  EXPECT_GT(outcome.mean, 0.5);
  EXPECT_LE(outcome.late, 60u);
}

// Transfers that may wait register for a helper whose share is used up.
TEST(HelperShare, TheTimeBudgetPaysForRegistrationsBeyondIt) {
  const Outcome refused = under(0.02, 2 * ms, 16, {.share = 0.0001, .credit = 0});
  const Outcome paid = under(0.02, 2 * ms, 16, {.share = 0.005});
  EXPECT_LE(paid.spent, paid.allowed + ms);
  EXPECT_LE(paid.lost, paid.may_lose);
  EXPECT_GT(paid.late, 60u);
  EXPECT_LT(paid.mean, refused.mean / 2) << refused.mean;
}

// Eight buffers are used 100 us apart, every 10 ms: their deadlines come one by one.
TEST(HelperShare, WithoutAnIdleCoreOneWakeUpServesABeat) {
  std::uint64_t wakeups[2] = {}, late[2] = {};
  double mean[2] = {};
  for (const bool idle : {false, true}) {
    test::VirtualHelper::Settings settings;
    settings.helper_share = {.share = HelperShare::kUnbounded, .core_idle = idle};
    settings.poll = ms;
    test::VirtualHelper helper(settings);
    for (int turn = 0; turn < 200; ++turn)
      for (std::size_t i = 0; i < 8; ++i)
        helper.add({.site = i,
                    .range = test::virtual_pages(i * 8, 8),
                    .not_before = kSecond + turn * 10 * ms + static_cast<Time>(i) * 100 * kMicrosecond,
                    .duration = 50 * kMicrosecond});
    helper.run();
    wakeups[idle] = helper.counters().helper_wakeups;
    late[idle] = helper.counters().late;
    mean[idle] =
        helper.registered().mean(kSecond, helper.now()) / helper.leave_pinned().mean(kSecond, helper.now());
  }
  EXPECT_LT(wakeups[false], 0.75 * static_cast<double>(wakeups[true]));
  EXPECT_LE(late[false], late[true]) << "registered a beat earlier";
  EXPECT_LT(mean[false], mean[true] + 0.1);
}

}  // namespace
}  // namespace pinion
