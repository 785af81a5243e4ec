// The two conditions to the nanosecond, and what the helper expects of a region.

#include <gtest/gtest.h>

#include "fixture.h"
#include "registry/blocking.h"
#include "support/test_name.h"

namespace pinion::helper_test {
namespace {

// ---- translation entries ----

TEST(EntriesAPage, FollowsTheRecentRegistrations) {
  EntriesAPage entries;
  EXPECT_EQ(entries.value(), 1);
  EXPECT_EQ(entries.of(7), 7u);
  for (int i = 0; i < 200; ++i) entries.observe(512, 1);
  EXPECT_NEAR(entries.value(), 1.0 / 512, 1e-4);
  EXPECT_EQ(entries.of(7), 1u);
  for (int i = 0; i < 200; ++i) entries.observe(100, 100);
  EXPECT_NEAR(entries.value(), 1, 0.05);
}

TEST_F(RetentionTest, RegistrationsTakeAsLongAsTheDevicesEntries) {
  costs.registration = LinearFit{1000, 0};
  HelperRetention who{domain, told, costs, {}};
  use(who, virtual_pages(0, 1024), kStart);
  EXPECT_EQ(told.uses.back().lead, costs.registration.upper(1024) + costs.wake.value());
  device.count_entries([](Range pages) { return (pages.pages() + 511) / 512; });
  use(who, virtual_pages(2048, 1024), kStart);
  EXPECT_EQ(told.uses.back().lead, costs.registration.upper(2) + costs.wake.value());
  use(who, virtual_pages(2048, 100), kStart);
  EXPECT_EQ(told.uses.back().lead, costs.registration.upper(1) + costs.wake.value())
      << "a part of the region";
}

TEST_F(RetentionTest, TheFitIsOverTheDevicesEntries) {
  device.count_entries([](Range pages) { return (pages.pages() + 511) / 512; });
  const Range buffer = virtual_pages(0, 1024);
  learn(buffer);
  const auto action = retention.next(kStart + kPeriod);
  ASSERT_EQ(action.kind, Kind::deregister);
  EXPECT_EQ(action.entries, 2u);
  retire_claimed(domain, action.region, Actor::helper);
  LinearFit fed = costs.deregistration;
  fed.observe(2, 50 * kMicrosecond);
  retention.done(action, {}, true, 50 * kMicrosecond, kStart + kPeriod);
  EXPECT_EQ(costs.deregistration.expected(2), fed.expected(2));
  EXPECT_EQ(costs.deregistration.expected(1024), fed.expected(1024));
}

// ---- settled buffers ----

TEST_F(RetentionTest, ABufferThatIsUsedAgainTooSoonIsDecidedAboutWhenItRests) {
  constexpr Duration kSoon = 30 * kMicrosecond, kRest = 10 * kMillisecond;
  const Range buffer = virtual_pages(0, 4);
  HelperRetention who{domain, told, costs, {}};  // where nothing is predicted, a region goes at once
  told.samples = true;
  Time now = kStart;
  use(who, buffer, now);
  for (unsigned reuses = 1; reuses <= 400; ++reuses) {
    use(who, buffer, now += kSoon);
    if (reuses < 20) continue;
    ASSERT_EQ(who.next(now).kind, Kind::sleep) << reuses;
  }
  EXPECT_LT(told.uses.size(), 50u) << "a sample";
  EXPECT_EQ(who.score().reuses, 400u);
  EXPECT_GT(who.score().within_0_5, 380u) << "it goes on as before";
  EXPECT_EQ(who.next(now + kRest - 1).kind, Kind::sleep);
  EXPECT_EQ(who.next_deadline(), now + kRest);
  EXPECT_EQ(who.next(now + kRest).kind, Kind::deregister);
}

TEST_F(RetentionTest, WhereRecordsAreLostTheRegionsCountTellsHowSoonItIsUsed) {
  constexpr Duration kRecorded = 3 * kMillisecond;  // one use in a hundred is recorded
  const Range buffer = virtual_pages(0, 4);
  for (const bool lost : {false, true}) {
    told.uses.clear();
    HelperRetention who{domain, told, costs, {}};
    told.samples = true;
    who.note_losses(lost);
    Time now = kStart;
    for (int i = 0; i < 100; ++i) {
      use(who, buffer, now += kRecorded);
      if (Region* const region = domain.try_hit(buffer, Access::read, recent)) {
        region->count_uses(99);
        domain.release(region);
      }
    }
    if (lost)
      EXPECT_LT(told.uses.size(), 50u) << "settled";
    else
      EXPECT_EQ(told.uses.size(), 100u);
  }
}

TEST_F(RetentionTest, AnotherUseOfTheThreadEndsTheRun) {
  constexpr Duration kSoon = 30 * kMicrosecond;
  const Range buffer = virtual_pages(0, 4);
  HelperRetention who{domain, told, costs, {}};
  told.samples = true;
  Time now = kStart;
  for (int i = 0; i < 100; ++i) use(who, buffer, now += kSoon);
  use(who, virtual_pages(10, 1), now += kSoon);
  const std::size_t before = told.uses.size();
  for (int i = 0; i < 10; ++i) use(who, buffer, now += kSoon);
  EXPECT_EQ(told.uses.size(), before + 10);
}

TEST_F(RetentionTest, APredictorThatCountsUsesSeesEach) {
  HelperRetention who{domain, told, costs, {}};
  for (int i = 0; i < 100; ++i) use(who, virtual_pages(0, 4), kStart + i * 30 * kMicrosecond);
  EXPECT_EQ(told.uses.size(), 100u);
}

// ---- the two conditions ----

/// Prices with all terms 0 but those under test. 100 pages.
struct Prices {
  const char* name;
  LinearFit registration, deregistration;
  Duration wake, compare, hash;
  Duration t_deregistration;  ///< t_p of the deregistration condition
  Duration t_registration;    ///< t_p of the registration condition
};

std::ostream& operator<<(std::ostream& out, const Prices& prices) { return out << prices.name; }

const Prices kPrices[] = {
    // 246 * 100 + 16000 = 40600, a term of both.
    {"t_register", {246, 16000}, kFree, 0, 0, 0, 40600, 40600},
    // 62 * 100 + 4000 = 10200, a term of both.
    {"t_deregister", kFree, {62, 4000}, 0, 0, 0, 10200, 10200},
    // Deregistration: t_insert + t_update over an empty queue, one comparison each: 2 * 7.
    // Registration: t_cache + t_insert + t_update over a queue that holds the item: 3 * 2 * 7.
    {"t_insert, t_update, t_cache", kFree, kFree, 0, 7, 0, 14, 42},
    // Searching the hash table belongs to the next item of the DQ.
    {"t_hash", kFree, kFree, 0, 0, 200, 0, 200},
    {"wake-up margin", kFree, kFree, 60000, 0, 0, 60000, 60000},
    // 40600 + 10200 + 60000 + 2 * 10 = 110820; 40600 + 10200 + 60000 + 3 * 2 * 10 + 200 = 111060.
    {"all", {246, 16000}, {62, 4000}, 60000, 10, 200, 110820, 111060},
};

class ConditionTest : public RetentionTest, public ::testing::WithParamInterface<Prices> {
 protected:
  const Prices& prices = GetParam();
  const Range buffer = virtual_pages(0, 100);
  const Time deadline = kStart + 2 * kPeriod;

  void SetUp() override {
    costs.registration = prices.registration;
    costs.deregistration = prices.deregistration;
    costs.wake = WakeMargin(prices.wake);
    costs.queue = {prices.compare, prices.hash};
  }
  Kind decision_at(Time now) {
    learn(buffer);
    return what(now);
  }
};

TEST_P(ConditionTest, DeregistersOneNanosecondBefore) {
  EXPECT_EQ(decision_at(deadline - prices.t_deregistration - 1), Kind::deregister);
}
TEST_P(ConditionTest, DeregistersAtEquality) {
  EXPECT_EQ(decision_at(deadline - prices.t_deregistration), Kind::deregister);
}
TEST_P(ConditionTest, KeepsOneNanosecondAfter) {
  EXPECT_EQ(decision_at(deadline - prices.t_deregistration + 1), Kind::sleep);
}

TEST_P(ConditionTest, RegistersNoSoonerThanItMust) {
  learn(buffer);
  settle(kStart + kPeriod);
  const Time due = deadline - prices.t_registration;
  const auto before = retention.next(due - 1);
  EXPECT_EQ(before.kind, Kind::sleep);
  EXPECT_EQ(before.wake_at, due);
  EXPECT_EQ(retention.next_deadline(), due);
  const auto at = retention.next(due);
  EXPECT_EQ(at.kind, Kind::register_ahead);
  EXPECT_EQ(at.pages, buffer);
}
TEST_P(ConditionTest, RegistersLateRatherThanNever) {
  learn(buffer);
  settle(kStart + kPeriod);
  EXPECT_EQ(what(deadline - prices.t_registration + 1), Kind::register_ahead);
}
TEST_P(ConditionTest, RegistersAfterTheDeadlineToo) {
  learn(buffer);
  settle(kStart + kPeriod);
  EXPECT_EQ(what(deadline + kPeriod), Kind::register_ahead);
}

INSTANTIATE_TEST_SUITE_P(Terms, ConditionTest, ::testing::ValuesIn(kPrices),
                         [](const auto& info) { return test::test_name(info.param.name); });

// The DQ item that may come in between is as large as recent ones were; a giant of long ago does not count.
TEST_F(RetentionTest, WhatIsRegisteredAheadIsNotWantedOnceItsMemoryHasGone) {
  const Range range = virtual_pages(0, 4);
  learn(range);
  settle(kStart + kPeriod);
  const auto action = retention.next(retention.next_deadline());
  ASSERT_EQ(action.kind, Kind::register_ahead);
  EXPECT_TRUE(retention.wants(action));
  retention.memory_event(range);
  EXPECT_FALSE(retention.wants(action));
}

TEST_F(RetentionTest, NothingIsExpectedOfMemoryThatWentUnderItsTransfer) {
  const Range range = virtual_pages(0, 4);
  learn(range);
  settle(kStart + kPeriod);
  ASSERT_NE(retention.next_deadline(), kNever);  // to be registered again
  // Unmapped in the middle of the next transfer, whose record comes when it is over.
  retention.memory_event(range);
  runlog::Event lease = lease_of(range, kStart + 2 * kPeriod, kStart + 2 * kPeriod);
  lease.flags = runlog::kMemoryGone;
  retention.use(lease, {}, 0);
  EXPECT_EQ(what(kStart + 3 * kPeriod), Kind::sleep);
  EXPECT_EQ(retention.next_deadline(), kNever);
}

TEST_F(RetentionTest, RangesOfOneCallBeginTogetherWhateverOneOfThemWaited) {
  HelperRetention told_retention{domain, told, costs, {}};
  const auto used = [&](Range range, Time time, Duration delayed) {
    told_retention.use(lease_of(range, time, time + 10 * kMillisecond), {}, delayed);
  };
  // A call with two ranges, the first of which was waited for; then one without waits.
  used(virtual_pages(0, 4), kStart, 0);
  used(virtual_pages(10, 4), kStart, 5 * kMillisecond);
  used(virtual_pages(0, 4), kStart + 105 * kMillisecond, 5 * kMillisecond);
  used(virtual_pages(10, 4), kStart + 105 * kMillisecond, 5 * kMillisecond);
  ASSERT_EQ(told.uses.size(), 4u);
  EXPECT_EQ(told.uses[0].time, kStart);
  EXPECT_EQ(told.uses[1].time, kStart);
  EXPECT_EQ(told.uses[2].time, kStart + 100 * kMillisecond);
  EXPECT_EQ(told.uses[3].time, kStart + 100 * kMillisecond);
}

TEST_F(RetentionTest, TermOfTheOtherItemIsTheLargestRecentOne) {
  costs.registration = kFree;
  costs.deregistration = LinearFit(1000, 0);
  costs.wake = WakeMargin(0);
  costs.queue = {0, 0};
  use(virtual_pages(100000, 5000), kStart - kMillisecond);
  learn(virtual_pages(0, 100));
  settle(kStart + kPeriod);
  EXPECT_EQ(retention.next_deadline(), kStart + 2 * kPeriod - 5000 * 1000);
  for (std::size_t i = 0; i < 32; ++i) use(virtual_pages(1000 + 10 * i, 5), kStart + kPeriod + kMillisecond);
  EXPECT_EQ(retention.next_deadline(), kStart + 2 * kPeriod - 5 * 1000);
}

}  // namespace
}  // namespace pinion::helper_test
