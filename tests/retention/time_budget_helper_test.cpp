// The time budget where no core is idle, so that the helper's work counts: by itself, and its bound on
// programs.
#include <gtest/gtest.h>

#include "retention/costs.h"
#include "support/virtual_helper.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond;

TEST(TimeBudgetOfTheHelper, WhatLeavePinnedDoesTooIsNoLoss) {
  TimeBudget budget({.share = 0.01}, 0);
  budget.used(30 * ms, false, 2 * kSecond);
  budget.leave_pinned_did(20 * ms);
  budget.used(55 * ms, false, 3 * kSecond);
  EXPECT_EQ(budget.by_helper(), 35 * ms);
  budget.leave_pinned_used(60 * ms);
  budget.used(61 * ms, false, 4 * kSecond);
  EXPECT_EQ(budget.by_helper(), 36 * ms);
}

TEST(TimeBudgetOfTheHelper, CountsTimeOfTheRunWhereNoCoreIsIdle) {
  TimeBudget budget({.share = 0.02, .delay = 4, .core_idle = true}, kSecond);
  budget.used(30 * ms, false, 2 * kSecond);
  EXPECT_EQ(budget.spent(), 0) << "a core was idle";
  EXPECT_EQ(budget.allowed(), 20 * ms);
  EXPECT_FALSE(budget.binds_helper());
  EXPECT_EQ(budget.least_sleep(), 0);
  budget.set_core_idle(false);
  budget.used(32 * ms, false, 3 * kSecond);
  EXPECT_EQ(budget.spent(), 8 * ms) << "four ranks on two cores lose it";
  EXPECT_EQ(budget.allowed(), 40 * ms) << "of two seconds";
}

TEST(TimeBudgetOfTheHelper, PeersAndOversubscribedCoresWait) {
  EXPECT_EQ(TimeBudget::delay_of(1, 1), 1);
  EXPECT_EQ(TimeBudget::delay_of(1, 8), 1);
  EXPECT_EQ(TimeBudget::delay_of(2, 2), 2);
  EXPECT_EQ(TimeBudget::delay_of(2, 8), 2) << "threads of the ranks keep the cores busy";
  EXPECT_EQ(TimeBudget::delay_of(4, 2), 4);
}

TEST(TimeBudgetOfTheHelper, RefusesWorkThatDoesNotFitBesideWorkSetAside) {
  TimeBudget budget({.share = 0.01, .least = 10 * ms}, 0);
  EXPECT_TRUE(budget.affords(9 * ms, 1e9));
  EXPECT_FALSE(budget.affords(11 * ms, 1e9));
  EXPECT_TRUE(budget.reserve(5 * ms));
  EXPECT_FALSE(budget.affords(6 * ms, 1e9));
  EXPECT_TRUE(budget.affords(4 * ms, 1e9));
}

TEST(TimeBudgetOfTheHelper, WhatItDoesInPlaceOfThreadsRaisesTheBound) {
  TimeBudget budget({.share = 0.01, .least = 10 * ms, .core_idle = true}, 0);
  budget.settle(budget.did_for_threads(5 * ms), true);
  EXPECT_EQ(budget.allowed(), 10 * ms) << "where nothing is spent, nothing is added";
  budget.set_core_idle(false);
  budget.used(10 * ms, false, 0);
  EXPECT_TRUE(budget.resting());
  const Duration one = budget.did_for_threads(5 * ms), other = budget.did_for_threads(4 * ms);
  budget.used(10 * ms, false, 0);
  EXPECT_FALSE(budget.resting()) << "learning goes on while it may be used";
  EXPECT_FALSE(budget.fits());
  EXPECT_EQ(budget.allowed(), 10 * ms);
  budget.settle(one, true);
  EXPECT_TRUE(budget.fits());
  EXPECT_EQ(budget.allowed(), 10 * ms + 5 * ms);
  budget.settle(other, false);
  EXPECT_EQ(budget.allowed(), 10 * ms + 5 * ms) << "it was in vain";
}

TEST(TimeBudgetOfTheHelper, ThePriceRisesAsTheRestShrinks) {
  TimeBudget budget({.share = 0, .least = 10 * ms}, 0);
  const auto least = [&] {  // seconds of holding everything, for 100 us of work
    double freed = 1e-9;
    while (!budget.affords(100 * kMicrosecond, freed)) freed *= 2;
    return freed;
  };
  double before = 0;
  for (Duration used = 0; used < 9800 * kMicrosecond; used += 700 * kMicrosecond) {
    budget.used(used, false, 0);
    EXPECT_GE(least(), before);
    before = least();
  }
  EXPECT_GT(before, 4e-4) << "four times the work";
}

TEST(TimeBudgetOfTheHelper, LooksTakeAQuarterOfTheShareAtMost) {
  TimeBudget budget({.share = 0.01, .delay = 4}, 0);
  Duration cpu = 0;
  for (int look = 0; look < 200; ++look) budget.used(cpu += 10 * kMicrosecond, true, look * ms * 10);
  EXPECT_NEAR(static_cast<double>(budget.least_sleep()), 16.0 * ms, 0.4 * ms);  // 40 us of the run by 0.25 %
}

TEST(TimeBudgetOfTheHelper, RestsUntilATenthIsThereAgain) {
  TimeBudget budget({.share = 0.01, .least = 10 * ms}, 0);
  budget.used(10 * ms, false, 0);
  EXPECT_TRUE(budget.resting());
  budget.used(10 * ms, true, 1050 * ms);
  EXPECT_TRUE(budget.resting()) << "a twentieth";
  budget.used(10 * ms, true, 1120 * ms);
  EXPECT_FALSE(budget.resting());
  budget.used(12 * ms, true, 1120 * ms);
  EXPECT_TRUE(budget.resting());
  budget.set_core_idle(true);
  budget.used(12 * ms, true, 1120 * ms);
  EXPECT_FALSE(budget.resting());
}

TEST(TimeBudgetOfTheHelper, OffRefusesNothing) {
  TimeBudget budget({.share = TimeBudget::kUnbounded}, 0);
  budget.used(kSecond, false, 1);
  EXPECT_TRUE(budget.affords(kSecond, 0));
  EXPECT_FALSE(budget.resting());
  EXPECT_EQ(budget.least_sleep(), 0);
  EXPECT_EQ(budget.allowed(), 0);
  EXPECT_EQ(budget.spent(), kSecond);
}

constexpr Duration kWakeCost = 5 * kMicrosecond;

/// Spending and mean registered bytes, of `buffers` used in turn by a thread that computes for `compute`
/// between them, four ranks on two cores.
struct Outcome {
  Duration allowed, spent;
  double mean;
  std::uint64_t late;
};
Outcome under(double share, Duration compute, std::size_t pages) {
  constexpr int kBuffers = 4, kTurns = 400;
  test::VirtualHelper::Settings settings;
  settings.predictor = "adaptive";
  settings.time_budget = {.share = share, .delay = 4};
  settings.wake_cost = kWakeCost;
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
  return {static_cast<Duration>(counters.budget_ns),
          counters.budget_on_threads_ns + static_cast<Duration>(counters.helper_charged_ns),
          helper.registered().mean(kSecond, helper.now()) / helper.leave_pinned().mean(kSecond, helper.now()),
          counters.late};
}

TEST(TimeBudgetOfTheHelper, BoundsWorkOnDenseAndOnLargeTransfers) {
  for (const auto& [compute, pages] :
       {std::pair{20 * kMicrosecond, std::size_t{1}}, std::pair{200 * kMicrosecond, std::size_t{16}},
        std::pair{ms, std::size_t{256}}, std::pair{10 * ms, std::size_t{4096}}}) {
    // One region goes, and comes back, each by a wake-up.
    const Duration one_registration =
        4 * (30 * kMicrosecond + static_cast<Duration>(pages) * (246 + 62) + 2 * kWakeCost);
    double mean = 1.1;
    for (const double share : {0.0, 0.01, 0.03, 0.1}) {
      const Outcome outcome = under(share, compute, pages);
      EXPECT_LE(outcome.spent, outcome.allowed + one_registration) << share << " of " << pages << " pages";
      EXPECT_LE(outcome.mean, mean + 0.015) << share << " of " << pages << " pages";
      mean = outcome.mean;
    }
  }
}

// Regions stay that the budget cannot register again.
TEST(TimeBudgetOfTheHelper, ARestLeavesNoRegionForTheThreadToRegister) {
  const Outcome outcome = under(0.005, 200 * kMicrosecond, 16);
  EXPECT_GT(outcome.mean, 0.5);
  EXPECT_LE(outcome.late, 60u);
}

// Eight buffers are used 100 us apart, every 10 ms: their deadlines come one by one.
TEST(TimeBudgetOfTheHelper, WithoutAnIdleCoreOneWakeUpServesABeat) {
  std::uint64_t wakeups[2] = {}, late[2] = {};
  double mean[2] = {};
  for (const bool idle : {false, true}) {
    test::VirtualHelper::Settings settings;
    settings.time_budget.core_idle = idle;
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
