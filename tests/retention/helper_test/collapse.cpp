// Buffers that are turned into hugepages while their regions are away: rent or buy.

#include <gtest/gtest.h>

#include <memory>

#include "fixture.h"

namespace pinion::helper_test {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;
constexpr Duration kIdle = 5 * kMillisecond;

/// Every second use comes too soon.
class UnsurePredictor final : public ToldPredictor {
  Estimate estimate(BufferId, Time, Duration) const override {
    return {.time = next, .early = next, .risk = 0.5, .reuse = 1};
  }
};

class CollapseDecisions : public RetentionTest {
 protected:
  static constexpr std::size_t kPages = 4 * kUnit / 4096;

  void SetUp() override {
    if (page_size() != 4096) GTEST_SKIP() << "worked out for pages of 4 KiB";
    make({.unit = kUnit});
  }

  void make(CollapsePlan::Settings collapse, std::size_t others = 40) {
    HelperRetention::Settings settings;
    settings.budget = &time_budget;
    settings.collapse = collapse;
    who = std::make_unique<HelperRetention>(domain, told, costs, settings);
    // The buffer's memory is worth little beside so much other.
    for (std::size_t i = 1; i <= others; ++i) {
      use(*who, virtual_pages(i * 5000 + kUnit, 5000), kStart);
      for (auto action = who->next(kStart); action.kind != Kind::sleep; action = who->next(kStart))
        gone(action, kStart);
    }
  }

  void gone(Retention::Action action, Time now, Retention::Collapsed collapsed = {}) {
    ASSERT_EQ(action.kind, Kind::deregister);
    retire_claimed(domain, action.region, Actor::helper);
    action.collapsed = collapsed;
    who->done(action, {}, true, costs.deregistration.expected(action.entries), now);
  }

  /// The next use of the buffer, which then is idle for `idle`; what the helper does.
  Retention::Action next_use(Range pages) {
    now += idle;
    time_budget.advance(now);
    told.next = now + idle;
    use(*who, pages, now);
    return who->next(now);
  }
  /// Uses of the buffer until it goes to be collapsed; nothing if it does not within so many.
  int uses_until_collapse(Range pages, Retention::Action& action, int most = 60) {
    for (int uses = 1; uses <= most; ++uses) {
      action = next_use(pages);
      if (action.kind == Kind::deregister) return uses;
    }
    return 0;
  }

  TimeBudget time_budget{{.share = 0.01, .core_idle = true}, kStart};
  UnsurePredictor told;
  std::unique_ptr<HelperRetention> who;
  Time now = kStart;
  Duration idle = kIdle;
  const Range buffer = virtual_pages(0, kPages);
};

TEST_F(CollapseDecisions, ABufferGoesOnceItsRentHasPaidForIt) {
  Retention::Action action;
  const int uses = uses_until_collapse(buffer, action);
  EXPECT_EQ(action.collapse, buffer);
  // Half a second of a second of work: 4 units of 550 us and a round trip of .65 ms, at a share of 1 in 98.
  // In idle times of 5 ms, after the first use.
  EXPECT_NEAR(uses, 1 + 140 / 5, 3);
  gone(action, now, {buffer.bytes(), buffer.bytes(), 2 * kMillisecond});
  EXPECT_EQ(uses_until_collapse(buffer, action, 20), 0) << "it is done";
}

TEST_F(CollapseDecisions, NothingIsCollapsedBeforeTheDeviceHasRegisteredTwice) {
  for (const std::size_t others : {0, 1}) {
    make({.unit = kUnit}, others);
    const Duration reserved = 20 * kMillisecond + now / 100;
    time_budget.reserve_beyond(reserved);
    Retention::Action action;
    ASSERT_EQ(uses_until_collapse(buffer, action, 100), 0);
    time_budget.give_back(reserved);
    ASSERT_EQ(uses_until_collapse(buffer, action, 2), 1);
    EXPECT_EQ(action.collapse.empty(), others == 0);
    gone(action, now);
  }
}

TEST_F(CollapseDecisions, OnlyWholeRegionsWhereAnOrdinaryPageMakesThemDear) {
  make({.unit = kUnit, .whole_regions = true});
  Retention::Action action;
  EXPECT_EQ(uses_until_collapse(virtual_pages(4 * kPages + 1, kPages), action), 0);
  EXPECT_GT(uses_until_collapse(buffer, action), 0);
}

TEST_F(CollapseDecisions, ElseTheUnitsWithin) {
  Retention::Action action;
  EXPECT_GT(uses_until_collapse(virtual_pages(1, kPages), action), 0);
  EXPECT_EQ(action.collapse, virtual_pages(kUnit / 4096, kPages - kUnit / 4096));
}

TEST_F(CollapseDecisions, ARegionThatGoesAnywayIsCollapsedOnceItsTripsHavePaidForIt) {
  Retention::Action action;
  for (int trips = 1; trips <= 10; ++trips) {
    now += kSecond;
    time_budget.advance(now);
    told.next = now + 100 * kSecond;
    use(*who, buffer, now);
    action = who->next(now);
    ASSERT_EQ(action.kind, Kind::deregister) << "it pays to let this one go alone";
    if (!action.collapse.empty()) {
      // 4 units of 550 us are paid by four round trips of .65 ms.
      EXPECT_EQ(trips, 1 + 4);
      EXPECT_EQ(action.collapse, buffer);
      return;
    }
    gone(action, now);
  }
  FAIL() << "it is never collapsed";
}

TEST_F(CollapseDecisions, RegionsThatWentForThePeakHinderNone) {
  budget.peak_goal().pursue(true);
  budget.peak_goal().grant(1e9);
  for (const std::size_t first : {0, 1}) use(*who, virtual_pages((1 << 21) + first * kPages, kPages), now);
  ASSERT_TRUE(domain.pressed()) << "the first of the two went";
  budget.peak_goal().pursue(false);
  Retention::Action action;
  EXPECT_GT(uses_until_collapse(buffer, action), 0);
}

TEST_F(CollapseDecisions, NothingIsCollapsedWhereMemoryIsShort) {
  domain.begin_shrink(0);
  Retention::Action action;
  EXPECT_EQ(uses_until_collapse(buffer, action), 0);
}

TEST_F(CollapseDecisions, WhatAForkHasUndoneIsMadeAgainAfterAMinute) {
  Retention::Action action;
  ASSERT_GT(uses_until_collapse(buffer, action), 0);
  gone(action, now, {buffer.bytes(), buffer.bytes(), 2 * kMillisecond});
  // The device still counts each page.
  ASSERT_EQ(uses_until_collapse(buffer, action, 20), 0);
  now += 60 * kSecond;
  EXPECT_GT(uses_until_collapse(buffer, action, 40), 0);
}

TEST_F(CollapseDecisions, ARefusalIsTriedAgainAfterAMinuteAndThenTwo) {
  Retention::Action action;
  ASSERT_GT(uses_until_collapse(buffer, action), 0);
  for (const Duration rest : {60 * kSecond, 120 * kSecond}) {
    gone(action, now, {0, 0, kMillisecond, true});
    const Time refused = now;
    ASSERT_EQ(uses_until_collapse(buffer, action, 50), 0);
    now = refused + rest - 10 * kIdle;
    ASSERT_EQ(uses_until_collapse(buffer, action, 8), 0);
    ASSERT_GT(uses_until_collapse(buffer, action, 5), 0);
  }
}

TEST_F(CollapseDecisions, AShortStretchShowsThePriceFirst) {
  const Range large = virtual_pages(1 << 20, 9 * kUnit / 4096);
  const Range first{large.begin, large.begin + 4 * kUnit};
  idle = 40 * kMillisecond;
  Retention::Action action;
  const int cheap = uses_until_collapse(large, action, 2000);
  ASSERT_GT(cheap, 0);
  EXPECT_EQ(action.collapse, first);
  // Six times the prior.
  gone(action, now, {first.bytes(), first.bytes(), 13 * kMillisecond});
  const int dear = uses_until_collapse(large, action, 2000);
  EXPECT_GT(dear, cheap) << "it pays rent for that first";
  EXPECT_EQ(action.collapse.begin, first.end);
  EXPECT_LE(action.collapse.bytes(), 4 * kUnit) << "in half of the idle time";
}

TEST_F(CollapseDecisions, WhatLayInHugepagesBeforeTellsNoPrice) {
  const Range large = virtual_pages(1 << 20, 9 * kUnit / 4096);
  Retention::Action action;
  for (const std::size_t done : {0, 4}) {
    ASSERT_GT(uses_until_collapse(large, action, 200), 0);
    EXPECT_EQ(action.collapse, (Range{large.begin + done * kUnit, large.begin + (done + 4) * kUnit}));
    gone(action, now, {4 * kUnit, 0, 10 * kMicrosecond});
  }
}

TEST_F(CollapseDecisions, NothingIsCollapsedForADeviceThatGainsNothing) {
  Retention::Action action;
  ASSERT_GT(uses_until_collapse(buffer, action), 0);
  gone(action, now, {buffer.bytes(), buffer.bytes(), 2 * kMillisecond});
  for (int i = 0; i < 3; ++i) {
    Retention::Action ahead;
    ahead.kind = Kind::register_ahead;
    ahead.buffer = action.buffer;
    ahead.pages = buffer;
    who->done(ahead, {}, true, costs.registration.expected(kPages), now);
  }
  EXPECT_EQ(uses_until_collapse(virtual_pages(2 * kPages, kPages), action), 0);
}

TEST_F(CollapseDecisions, TheBudgetSavesUpForIt) {
  const Duration reserved = 19 * kMillisecond + 500 * kMicrosecond;
  time_budget.reserve_beyond(reserved);
  Retention::Action action;
  ASSERT_EQ(uses_until_collapse(buffer, action, 30), 0);
  // It would pay alone to let this one go: its next use is far away.
  told.next = now + 100 * kSecond;
  use(*who, virtual_pages(2 * kPages, 16), now);
  use(*who, virtual_pages(2 * kPages, 16), now + kMicrosecond);
  EXPECT_EQ(who->next(now + kMicrosecond).kind, Kind::sleep);
  time_budget.give_back(reserved);
  EXPECT_EQ(uses_until_collapse(buffer, action, 2), 1);
  EXPECT_EQ(action.collapse, buffer);
}

}  // namespace
}  // namespace pinion::helper_test
