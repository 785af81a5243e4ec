// The helper's share: the ledger by itself, and its bound on programs where no core is idle.
#include "retention/helper_share.h"

#include <gtest/gtest.h>

#include "support/virtual_helper.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond;

TEST(HelperShare, CountsTimeOfTheRunWhereNoCoreIsIdle) {
  HelperShare share({.share = 0.02, .part = 0.5, .core_idle = true}, kSecond);
  share.used(30 * ms, 0, false, 2 * kSecond);
  EXPECT_EQ(share.spent(), 0) << "a core was idle";
  EXPECT_EQ(share.allowed(), HelperShare::kCredit);
  EXPECT_FALSE(share.binds());
  EXPECT_EQ(share.least_sleep(), 0);
  share.set_core_idle(false);
  share.used(32 * ms, 0, false, 3 * kSecond);
  EXPECT_EQ(share.spent(), 4 * ms) << "of half a core";
  EXPECT_EQ(share.allowed(), HelperShare::kCredit + 10 * ms) << "half of it, as two ranks share a core";
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
  EXPECT_EQ(share.allowed(), HelperShare::kCredit) << "where nothing is spent, nothing is added";
  share.set_core_idle(false);
  share.used(10 * ms, 0, false, 0);
  EXPECT_TRUE(share.resting());
  share.did_for_threads(5 * ms);
  share.used(10 * ms, 0, false, 0);
  EXPECT_EQ(share.allowed(), HelperShare::kCredit + 5 * ms);
  EXPECT_FALSE(share.resting());
  share.did_for_threads(-5 * ms);
  EXPECT_EQ(share.allowed(), HelperShare::kCredit) << "it was in vain";
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
  EXPECT_GT(before, 1e-3) << "ten times the work";
}

TEST(HelperShare, LooksTakeHalfOfTheShareAtMost) {
  HelperShare share({.share = 0.01, .part = 0.5}, 0);
  Duration cpu = 0;
  for (int look = 0; look < 200; ++look) share.used(cpu += 10 * kMicrosecond, 0, true, look * ms * 10);
  EXPECT_NEAR(static_cast<double>(share.least_sleep()), 8.0 * ms, 0.2 * ms);  // 20 us of the run by 0.25 %
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
};
Outcome under(double share, Duration compute, std::size_t pages) {
  constexpr int kBuffers = 4, kTurns = 400;
  test::VirtualHelper::Settings settings;
  settings.predictor = "adaptive";
  settings.helper_share = {.share = share, .part = 0.5};
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
          counters.late};
}

TEST(HelperShare, BoundsWorkOnDenseAndOnLargeTransfers) {
  for (const auto& [compute, pages] :
       {std::pair{20 * kMicrosecond, std::size_t{1}}, std::pair{200 * kMicrosecond, std::size_t{16}},
        std::pair{ms, std::size_t{256}}, std::pair{10 * ms, std::size_t{4096}}}) {
    double mean = 1.1;
    for (const double share : {0.0, 0.01, 0.03, 0.1}) {
      const Outcome outcome = under(share, compute, pages);
      EXPECT_LE(outcome.spent, outcome.allowed + ms) << share << " of " << pages << " pages";
      EXPECT_LE(outcome.mean, mean + 0.01) << share << " of " << pages << " pages";
      mean = outcome.mean;
    }
  }
}

// Work that exceeds the share is left out, and transfers do not wait for it.
TEST(HelperShare, ARestLeavesNoRegionForTheThreadToRegister) {
  const Outcome outcome = under(0.005, 200 * kMicrosecond, 16);
  EXPECT_GT(outcome.mean, 0.5);
  EXPECT_LE(outcome.late, 60u);
}

}  // namespace
}  // namespace pinion
