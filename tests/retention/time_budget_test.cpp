// The time budget: the ledger by itself, and the bound that it promises on programs made to break it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "retention/buffers.h"
#include "retention/costs.h"
#include "retention/shortage.h"
#include "support/virtual_helper.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond, us = kMicrosecond;

TEST(TimeBudget, AReservationFitsOrIsRefused) {
  TimeBudget budget({.share = 0.01, .least = 10 * ms, .core_idle = true}, kSecond);
  EXPECT_TRUE(budget.fits(9 * ms));
  EXPECT_FALSE(budget.fits(10 * ms));
  EXPECT_TRUE(budget.reserve(6 * ms));
  EXPECT_TRUE(budget.reserve(5 * ms)) << "the last one exceeds the rest";
  EXPECT_FALSE(budget.reserve(1 * ms));
  EXPECT_EQ(budget.refused(), 1u);
  EXPECT_EQ(budget.enough_at(), kSecond + 1100 * ms) << "11 ms of 1 %";
  budget.advance(kSecond + 1200 * ms);
  EXPECT_TRUE(budget.reserve(5 * ms));
  EXPECT_FALSE(budget.reserve(1));
  budget.give_back(6 * ms);
  EXPECT_TRUE(budget.reserve(6 * ms));
}

TEST(TimeBudget, WhatIsLostIsGone) {
  TimeBudget budget({.share = 0, .least = 10 * ms, .core_idle = true}, 0);
  budget.waited(9 * ms);
  budget.leave_pinned_waited(4 * ms);
  budget.leave_pinned_waited(-1 * ms);
  budget.waited(10 * ms);  // a total: 1 ms more
  EXPECT_EQ(budget.on_threads(), 7 * ms);
  budget.kept_books(2 * ms);
  EXPECT_EQ(budget.on_threads(), 9 * ms);
  EXPECT_TRUE(budget.reserve(1 * ms));
  EXPECT_FALSE(budget.reserve(1));
  EXPECT_EQ(budget.enough_at(), kNever) << "nothing is added as time passes";
}

TEST(TimeBudget, RunsOfSecondsMayLoseTwentyMilliseconds) {
  TimeBudget budget({.share = 0.01}, 5 * kSecond);
  EXPECT_EQ(budget.allowed(), 20 * ms);
  budget.advance(6 * kSecond);
  EXPECT_EQ(budget.allowed(), 20 * ms);
  budget.advance(8 * kSecond);
  EXPECT_EQ(budget.allowed(), 30 * ms);
}

TEST(TimeBudget, ThreadsAndHelperSpendOneBound) {
  TimeBudget budget({.share = 0, .delay = 2}, 0);
  budget.waited(12 * ms);
  budget.used(3 * ms, false, ms);
  EXPECT_EQ(budget.on_threads(), 12 * ms);
  EXPECT_EQ(budget.by_helper(), 6 * ms);
  EXPECT_EQ(budget.spent(), 18 * ms);
  EXPECT_TRUE(budget.reserve(ms)) << "which costs 2 ms by the helper";
  EXPECT_FALSE(budget.reserve(1));
}

TEST(TimeBudget, WaitsForWantOfRoomAreTheLimits) {
  TimeBudget budget({.share = 0}, 0);
  budget.waited(12 * ms);
  budget.leave_pinned_waited(9 * ms);
  EXPECT_EQ(budget.on_threads(), 3 * ms);
}

TEST(RegisteredOnce, IsTheMostThatThereWas) {
  RegisteredOnce once;
  const std::size_t page = page_size();
  once.add({.fresh_bytes = 4 * page, .all_bytes = 4 * page});
  once.add({.fresh_bytes = 0, .all_bytes = 4 * page});
  once.add({.fresh_bytes = 2 * page, .all_bytes = 6 * page});
  EXPECT_EQ(once.pages, 6u);
  EXPECT_EQ(once.calls, 2u);
  once.add({.fresh_bytes = 4 * page, .all_bytes = 6 * page});  // four pages went, and came anew
  EXPECT_EQ(once.pages, 6u);
  EXPECT_EQ(once.calls, 2u);
}

TEST(TimeBudget, LeavePinnedWaitsForUntouchedPagesToo) {
  EXPECT_EQ(leave_pinned_wait(100 * ms, 1 * ms, 1), 100 * ms);
  EXPECT_EQ(leave_pinned_wait(100 * ms, 1 * ms, 0.5), 50 * ms);
  EXPECT_EQ(leave_pinned_wait(100 * ms, 30 * ms, 0.125), 30 * ms);
  EXPECT_EQ(leave_pinned_wait(10 * ms, 30 * ms, 0.125), 10 * ms);
}

TEST(TimeBudget, ThePriceGrowsAsTheBudgetRunsOut) {
  TimeBudget budget({.share = 0.005, .least = 10 * ms}, 0);
  double before = 0;
  for (const Duration lost : {0 * ms, 2 * ms, 5 * ms, 9 * ms, 10 * ms, 50 * ms}) {
    budget.waited(lost);
    EXPECT_GE(budget.price(), before);
    before = budget.price();
  }
  EXPECT_GE(before, 5000) << "seconds of everything, for one second";
}

TEST(TimeBudget, ALossIsTwiceAsDearFromATwentiethOfTheBoundOn) {
  TimeBudget budget({.share = 0.01, .least = 20 * ms}, 0);
  EXPECT_NEAR(budget.twice_as_dear(), 1.0 * ms, 0.05 * ms);
  budget.advance(100 * kSecond);
  EXPECT_NEAR(budget.twice_as_dear(), 50.0 * ms, 2.5 * ms);
  EXPECT_TRUE(std::isinf(TimeBudget({.share = TimeBudget::kUnbounded}, 0).twice_as_dear()));
}

// A bound of 20 ms holds five transfers that are 4 ms late each, and what the first ones teach comes too
// late.
TEST(TimeBudget, ALateUseOfALargeBufferIsDearerThanItsTime) {
  const CostEstimates costs;
  BufferTable buffers;
  TimeBudget budget({.share = 0.01, .least = 20 * ms}, 0);
  Ledger bounded(&budget, costs, buffers), unbounded(nullptr, costs, buffers);
  bounded.note_terms();
  unbounded.note_terms();
  const auto dearer = [&](std::size_t pages) {
    return static_cast<double>(bounded.worth(pages, pages)) /
           static_cast<double>(unbounded.worth(pages, pages));
  };
  EXPECT_NEAR(dearer(1), 1, 0.1);
  EXPECT_NEAR(dearer(16384), 5, 0.5);
}

// With all cores busy, the helper's work counts: a deregistration, and the registration for the next use. A
// buffer without a next use has the first alone.
TEST(TimeBudget, ARegionThatNoUseIsExpectedOfCostsItsDeregistrationAlone) {
  const CostEstimates costs;
  BufferTable buffers;
  TimeBudget budget({.share = 0, .least = 10 * ms, .delay = 2}, kSecond);
  const Ledger ledger(&budget, costs, buffers);
  const Duration goes = costs.deregistration.expected(16384), comes = costs.registration.expected(16384);
  ASSERT_LT(2 * goes, 9 * ms);
  ASSERT_GT(2 * (goes + comes), 10 * ms);
  EXPECT_TRUE(ledger.affords(16384, 16384, {}, kSecond));
  const Estimate expected{.time = 100 * kSecond, .early = 100 * kSecond};
  EXPECT_FALSE(ledger.affords(16384, 16384, expected, kSecond));
  budget.waited(9 * ms);
  EXPECT_FALSE(ledger.affords(16384, 16384, {}, kSecond));
}

// The price without a bound equals that of an untouched bound.
TEST(TimeBudget, ALargerBudgetNeverHasAHigherPrice) {
  const auto price = [](double share, Duration least, Duration lost) {
    TimeBudget budget({.share = share, .least = least}, 0);
    budget.advance(kSecond);
    budget.waited(lost);
    return budget.price();
  };
  for (const Duration lost : {0 * ms, 1 * ms, 4 * ms, 20 * ms, 100 * ms}) {
    double before = price(0.0001, 0, lost);
    for (const double share : {0.001, 0.005, 0.05}) {
      EXPECT_LE(price(share, 0, lost), before) << share;
      EXPECT_LE(price(share, 20 * ms, lost), price(share, 0, lost)) << share;
      before = price(share, 0, lost);
    }
    EXPECT_LE(price(TimeBudget::kUnbounded, 0, lost), before);
  }
  EXPECT_EQ(price(TimeBudget::kUnbounded, 0, 0), price(0.005, 0, 0));
}

TEST(TimeBudget, WithoutABoundNothingIsRefused) {
  TimeBudget budget({.share = TimeBudget::kUnbounded}, 0);
  budget.waited(100 * kSecond);
  EXPECT_TRUE(budget.reserve(100 * kSecond));
  EXPECT_EQ(budget.refused(), 0u);
}

// Libraries register their pools at the start and deregister them at the end.
TEST(TimeBudget, ARegistrationWhoseLeaseLastsIsNoLoss) {
  test::VirtualHelper::Settings settings;
  settings.time_budget = {.core_idle = true};
  test::VirtualHelper run(settings);
  run.add({.site = 1, .range = test::virtual_pages(0, 1 << 16), .duration = 10 * kSecond, .blocking = false});
  run.add({.site = 2, .range = test::virtual_pages(1 << 17, 64), .compute = ms, .duration = ms});
  run.run_until(settings.start + kSecond);
  EXPECT_GT(run.counters().registration_ns, static_cast<std::uint64_t>(10 * ms));
  EXPECT_EQ(run.time_budget().on_threads(), 0);
  run.run();
  EXPECT_EQ(run.time_budget().on_threads(), 0) << "the lease has ended";
}

// ---- a call that took far too long ----

/// Registrations that take 40 ms instead of 32 us, as where another process had the core: the first ones of
/// the process, or later ones.
struct Outlier {
  const char* name;
  std::size_t first, count;
};

class PeriodicUser : public ::testing::TestWithParam<std::tuple<Outlier, const char*>> {};

TEST_P(PeriodicUser, IsRegisteredForAheadAllTheSame) {
  const auto& [outlier, predictor] = GetParam();
  std::size_t registrations = 0;
  test::VirtualHelper::Settings settings;
  settings.predictor = predictor;
  settings.time_budget = {.core_idle = true};
  settings.wake_latency = [] { return 60 * us; };
  settings.poll = ms;
  settings.call_time = [&, &outlier = outlier](Actor, bool registration, Duration modelled) {
    if (!registration) return modelled;
    const std::size_t number = registrations++;
    return number >= outlier.first && number < outlier.first + outlier.count ? 40 * ms : modelled;
  };
  test::VirtualHelper run(settings);
  for (std::size_t n = 0; n < 10000; ++n)
    run.add({.site = 1, .range = test::virtual_pages(0, 64), .compute = 4 * ms, .duration = 10 * us});
  run.run();
  EXPECT_GT(run.calls(true, Actor::helper), 2000u) << "of 10000 uses, 4 ms apart";
}

INSTANTIATE_TEST_SUITE_P(
    All, PeriodicUser,
    ::testing::Combine(::testing::Values(Outlier{"TheFirst", 0, 1}, Outlier{"TheSecond", 1, 1},
                                         Outlier{"TheFifth", 4, 1}, Outlier{"TheFirstTwo", 0, 2}),
                       ::testing::Values("adaptive", "shortest")),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param);
    });

// ---- the bound ----

/// The next step of a program that tries to lose time.
struct Adversary {
  const char* name;
  /// Compute time before the n-th transfer, and which buffer it takes.
  std::function<std::pair<Duration, std::size_t>(std::size_t n, std::mt19937_64& random)> next;
  std::size_t buffers;
};

const std::vector<Adversary>& adversaries() {
  static const std::vector<Adversary> all = {
      // Teaches a long interval, then comes back at once, again and again.
      {"broken-promise",
       [](std::size_t n, auto&) {
         return std::pair{n % 20 == 19 ? 500 * us : 30 * ms, n % 3};
       },
       3},
      // Many buffers once, then all of them in a row.
      {"all-at-once",
       [](std::size_t n, auto&) {
         return std::pair{n / 400 % 2 ? 20 * us : 5 * ms, n % 400};
       },
       400},
      {"random",
       [](std::size_t, std::mt19937_64& random) {
         return std::pair{static_cast<Duration>(random() % 4000) * us, std::size_t{random() % 30}};
       },
       30},
      // Just before the helper would be ready: intervals shrink, and jump back.
      {"shrinking",
       [](std::size_t n, auto&) {
         return std::pair{(50 - static_cast<Duration>(n % 48)) * ms, n % 2};
       },
       2},
  };
  return all;
}

using Case = std::tuple<std::size_t, const char*, double>;
class Adversarial : public ::testing::TestWithParam<Case> {};

TEST_P(Adversarial, LosesNoMoreThanTheBoundAndOneRegistration) {
  const auto& [which, predictor, share] = GetParam();
  const Adversary& adversary = adversaries()[which];
  test::VirtualHelper::Settings settings;
  settings.predictor = predictor;
  settings.time_budget = {.share = share, .least = 5 * ms, .core_idle = true};
  settings.wake_latency = [] { return 60 * us; };
  settings.poll = ms;
  test::VirtualHelper run(settings);
  std::mt19937_64 random(1);
  for (std::size_t n = 0; n < 3000; ++n) {
    const auto [compute, buffer] = adversary.next(n, random);
    test::VirtualHelper::Transfer transfer;
    transfer.site = 1 + buffer % 5;
    transfer.range = test::virtual_pages(1000 * buffer, 16 + 200 * (buffer % 3));
    transfer.compute = compute;
    transfer.duration = 50 * us;
    run.add(transfer);
  }
  constexpr double kOneRegistration = 16000 + 246 * 416;  // ns, of the largest buffer
  double most = 0;
  run.after_each = [&] {
    const runlog::Counters& c = run.counters();
    const double lost = static_cast<double>(c.wait_ns + c.registration_ns) - c.leave_pinned_registration_ns;
    const auto elapsed = static_cast<double>(run.now() - settings.start);
    ASSERT_LE(lost, std::max(static_cast<double>(5 * ms), share * elapsed) + kOneRegistration) << elapsed;
    most = std::max(most, lost);
  };
  run.run();
  EXPECT_GT(most, 0.05 * ms) << "the program was no adversary";
}

INSTANTIATE_TEST_SUITE_P(All, Adversarial,
                         ::testing::Combine(::testing::Range(std::size_t{0}, std::size_t{4}),
                                            ::testing::Values("adaptive", "shortest"),
                                            ::testing::Values(0.0, 0.0005, 0.005)),
                         [](const auto& info) {
                           std::string name = adversaries()[std::get<0>(info.param)].name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::get<1>(info.param) + "_" +
                                  std::to_string(static_cast<int>(std::get<2>(info.param) * 1e5));
                         });

}  // namespace
}  // namespace pinion
