// The helper's decisions against schedules worked out by hand: conditions to the nanosecond, the registration
// queue, prediction and its score, dropping and forgetting.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "predict/shortest.h"
#include "registry/blocking.h"
#include "retention/helper_retention.h"
#include "support/test_name.h"
#include "support/virtual_helper.h"

namespace pinion {
namespace {

using test::virtual_pages;
using test::VirtualHelper;
using Kind = Retention::Action::Kind;

constexpr Time kStart = kSecond;
constexpr Duration kPeriod = 10 * kMillisecond;
constexpr Duration kOver = 10 * kMicrosecond;  // the helper looks so long after a transfer should be over

/// Returns the test's predictions, and records its observations.
class ToldPredictor final : public Predictor {
 public:
  const char* name() const override { return "told"; }
  Observed observe(const Use& use) override {
    uses.push_back(use);
    return {next, next};
  }
  Time next_use(BufferId, Time) const override { return next; }
  void forget(BufferId) override {}
  bool samples_runs() const override { return samples; }
  Time next = kNever;
  bool samples = false;
  std::vector<Use> uses;
};

/// A use of `range` from `begin` to `end`, hit or miss by its outcome, as in the log.
runlog::Event lease_of(Range range, Time begin, Time end, std::uint64_t site = 0) {
  runlog::Event lease{};
  lease.kind = runlog::EventKind::lease;
  lease.begin_ns = begin;
  lease.end_ns = end;
  lease.address = range.begin;
  lease.bytes = range.bytes();
  lease.site = site;
  return lease;
}

/// The retention alone over a domain whose device costs nothing: the test is application, helper and clock.
class RetentionTest : public ::testing::Test {
 protected:
  VirtualClock clock;
  ModelDevice device{nic()};
  Budget budget{Limits{}};
  Brackets brackets;
  Domain domain{device, budget, brackets, clock, nullptr};
  CostEstimates costs;
  ShortestPredictor shortest{0};
  ToldPredictor told;
  HelperRetention retention{domain, shortest, costs, {}};
  RecentRegions recent;

  // Device calls report their expected times, so that they teach nothing new.

  /// Takes no time; 5000 pages in one region.
  static CostModel nic() {
    CostModel nic;
    nic.caps.max_region_bytes = 5000 * page_size();
    return nic;
  }

  /// A transfer that takes no time, learnt by `who`. Whether it was late.
  bool use(Retention& who, Range range, Time time, std::uint64_t site = 1) {
    clock.set(time);
    runlog::Event lease = lease_of(range, time, time, site);
    Region* region = domain.try_hit(range, Access::read, recent);
    if (!region) {
      Acquisition acquisition(domain, {.pages = range.to_pages()});
      EXPECT_EQ(run_blocking(acquisition, Actor::application), AcquireStep::leased);
      region = acquisition.result().region;
      lease.outcome = runlog::Outcome::miss;
    }
    const RegionRef ref{region, region->generation()};
    domain.release(region);
    return who.use(lease, ref, 0);
  }
  bool use(Range range, Time time, std::uint64_t site = 1) { return use(retention, range, time, site); }

  Kind what(Time now) { return retention.next(now).kind; }
  void deregister(const Retention::Action& action, Time now) {
    ASSERT_EQ(action.kind, Kind::deregister);
    retire_claimed(domain, action.region, Actor::helper);
    retention.done(action, {}, true, costs.deregistration.expected(action.pages.pages()), now);
  }
  void register_ahead(const Retention::Action& action, Time now) {
    ASSERT_EQ(action.kind, Kind::register_ahead);
    Acquisition acquisition(domain, {.pages = action.pages, .access = action.access, .lease = false});
    ASSERT_EQ(run_blocking(acquisition, Actor::helper), AcquireStep::leased);
    Region* const region = acquisition.result().region;
    retention.done(action, {region, region->generation()}, true, 0, now);
  }
  /// The use that should be over by then does not come: each look for it is twice as far away.
  void expect_wakes(Time over) {
    for (Duration later = 0; later < kMillisecond; later = std::max(2 * later, 20 * kMicrosecond)) {
      EXPECT_EQ(what(over + later), Kind::sleep);
      EXPECT_EQ(retention.next_deadline(), over + std::max(2 * later, 20 * kMicrosecond));
    }
    EXPECT_EQ(what(over + 1280 * kMicrosecond), Kind::sleep);
  }
  /// Lets go all regions due at `now`.
  void settle(Time now) {
    for (auto action = retention.next(now); action.kind != Kind::sleep; action = retention.next(now))
      deregister(action, now);
  }
  /// Uses of `range` at kStart and kStart + kPeriod, let go after each: due again at kStart + 2 kPeriod.
  void learn(Range range) {
    use(range, kStart);
    settle(kStart);
    use(range, kStart + kPeriod);
  }
};

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
  device.pages_an_entry(512);
  use(who, virtual_pages(2048, 1024), kStart);
  EXPECT_EQ(told.uses.back().lead, costs.registration.upper(2) + costs.wake.value());
  use(who, virtual_pages(2048, 100), kStart);
  EXPECT_EQ(told.uses.back().lead, costs.registration.upper(1) + costs.wake.value())
      << "a part of the region";
}

TEST_F(RetentionTest, TheFitIsOverTheDevicesEntries) {
  device.pages_an_entry(512);
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

const LinearFit kFree{0, 0};
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

// ---- decisions ----

TEST_F(RetentionTest, FirstUseIsLetGoAtOnceAndNotQueued) {
  use(virtual_pages(0, 4), kStart);
  settle(kStart);
  EXPECT_EQ(device.live_regions(), 0u);
  EXPECT_TRUE(retention.queue().empty());
  EXPECT_EQ(retention.next_deadline(), kNever);
}

TEST_F(RetentionTest, EarliestDeadlineOfSeveralSites) {
  const Range buffer = virtual_pages(0, 4);
  // Site 1 at 0 and 1000 ms: due at 2000. Site 2 at 300 and 1300 ms: due at 2300.
  for (const auto& [ms, site] : {std::pair{0, 1}, {300, 2}, {1000, 1}, {1300, 2}}) {
    use(buffer, kStart + ms * kMillisecond, static_cast<std::uint64_t>(site));
    settle(kStart + ms * kMillisecond);
  }
  ASSERT_EQ(retention.queue().size(), 1u);
  EXPECT_EQ(retention.queue().first().deadline, kStart + 2000 * kMillisecond);
}

TEST_F(RetentionTest, EarliestDeadlineOfBuffersInOneRegion) {
  // A region of 8 pages, and a buffer of its first 4 that is used in between.
  const Range whole = virtual_pages(0, 8), part = virtual_pages(0, 4);
  use(whole, kStart);
  use(part, kStart + kMillisecond);
  use(part, kStart + 3 * kMillisecond);   // due at 5 ms
  use(whole, kStart + 4 * kMillisecond);  // due at 8 ms
  settle(kStart + 4 * kMillisecond);
  EXPECT_EQ(device.live_regions(), 0u);
  ASSERT_EQ(retention.queue().size(), 2u);
  EXPECT_EQ(retention.queue().first().deadline, kStart + 5 * kMillisecond);
}

// The helper looks after the use should have come: it is due at any moment, and the paper's inequality does
// not hold.
TEST_F(RetentionTest, OverdueUseIsKept) {
  const Range buffer = virtual_pages(0, 4);
  use(buffer, kStart);
  settle(kStart);
  use(buffer, kStart + 50 * kMicrosecond);
  EXPECT_EQ(what(kStart + kMillisecond), Kind::sleep);
  EXPECT_EQ(device.live_regions(), 1u);
}

TEST_F(RetentionTest, KeptRegionIsLetGoWhenItsUseDoesNotCome) {
  const Range buffer = virtual_pages(0, 4);
  use(buffer, kStart);
  settle(kStart);
  use(buffer, kStart + 20 * kMillisecond);
  use(buffer, kStart + 20 * kMillisecond + 50 * kMicrosecond);
  // Due 50 us later: kept. It is waited for no longer than that is worth, which for four pages is the least.
  const Time look = kStart + 20 * kMillisecond + 100 * kMicrosecond + 10 * kMillisecond;
  auto action = retention.next(kStart + 20 * kMillisecond + 50 * kMicrosecond);
  EXPECT_EQ(action.kind, Kind::sleep);
  // It looks when the use should be over: its only work is to learn of it.
  const Time over = kStart + 20 * kMillisecond + 100 * kMicrosecond + kOver;
  EXPECT_EQ(action.wake_at, over);
  expect_wakes(over);
  EXPECT_EQ(retention.next_deadline(), look);
  EXPECT_EQ(what(look - 1), Kind::sleep);
  deregister(retention.next(look), look);
  EXPECT_TRUE(retention.queue().empty());
  EXPECT_EQ(retention.next_deadline(), kNever);
}

TEST_F(RetentionTest, RegionRegisteredAheadIsLetGoWhenItsUseDoesNotCome) {
  const Range buffer = virtual_pages(0, 4);
  const Duration period = 20 * kMillisecond;
  use(buffer, kStart);
  settle(kStart);
  use(buffer, kStart + period);
  settle(kStart + period);
  const Time due = retention.next_deadline();
  register_ahead(retention.next(due), due);
  EXPECT_EQ(device.live_regions(), 1u);
  const Time over = kStart + 2 * period + kOver, patience_ends = kStart + 2 * period + 10 * kMillisecond;
  EXPECT_EQ(retention.next_deadline(), over);
  expect_wakes(over);
  EXPECT_EQ(retention.next_deadline(), patience_ends);
  EXPECT_EQ(what(patience_ends - 1), Kind::sleep);
  settle(patience_ends);
  EXPECT_EQ(device.live_regions(), 0u);
  EXPECT_EQ(retention.next_deadline(), kNever);
}

TEST_F(RetentionTest, AnOverdueUseIsWaitedForNoLongerForWhatIsDecidedMeanwhile) {
  costs.registration = LinearFit(0, 50.0 * kMillisecond);  // too dear for a trial
  const Range buffer = virtual_pages(0, 4);
  use(buffer, kStart);
  use(buffer, kStart + 50 * kMicrosecond);
  const Time first = kStart + kMillisecond;  // the third is overdue by then
  EXPECT_EQ(what(first), Kind::sleep);
  for (int i = 1; i < 9; ++i) {
    retention.evicted(buffer, first + i * kMillisecond);
    EXPECT_EQ(what(first + i * kMillisecond), Kind::sleep);
  }
  settle(first + 10 * kMillisecond);
  EXPECT_EQ(device.live_regions(), 0u);
}

// Three intervals of a second would cost far more than the late use.
TEST_F(RetentionTest, AUseIsWaitedForUntilThatHasCostAsMuchAsALateOne) {
  const Range buffer = virtual_pages(0, 4);
  const Duration period = kSecond, registration = 20 * kMillisecond;
  costs.registration = LinearFit(0, static_cast<double>(registration));
  for (int i = 0; i < 2; ++i) {
    use(buffer, kStart + i * period);
    settle(kStart + i * period);
  }
  const Time due = retention.next_deadline();
  register_ahead(retention.next(due), due);
  expect_wakes(kStart + 2 * period + kOver);
  // The buffer is all there is, and a lost second is worth four of holding everything.
  const Duration patience = retention.next_deadline() - (kStart + 2 * period);
  EXPECT_LE(patience, 4 * registration);
  EXPECT_GT(patience, 7 * registration / 2);
  settle(kStart + 2 * period + patience);
  EXPECT_EQ(device.live_regions(), 0u);
}

// An estimate of 2 ms lets nothing go for 1 ms. A lost second is worth four of holding everything, and the
// trial comes after eight times that.
TEST_F(RetentionTest, WhatWasNeverLetGoIsTriedOnce) {
  costs.registration = LinearFit(0, 2.0 * kMillisecond);
  const Range buffer = virtual_pages(0, 4);
  std::vector<int> tried;
  for (int i = 0; i < 300; ++i) {
    const Time time = kStart + i * kMillisecond;
    use(buffer, time);
    if (i == 0) continue;  // used once, it may go
    const auto action = retention.next(time);
    if (action.kind != Kind::deregister) continue;
    deregister(action, time);
    tried.push_back(i);
  }
  ASSERT_EQ(tried.size(), 1u);
  EXPECT_NEAR(tried[0], 8 * 4 * 2, 4);
}

// Regions overlap where the device could not merge them. The buffer that one was registered for is served by
// the other now: only the retention still has the first.
TEST_F(RetentionTest, RegionThatServesItsBufferNoLongerIsLetGo) {
  const Range part = virtual_pages(0, 2000), buffer = virtual_pages(1000, 4000);
  use(part, kStart);
  use(buffer, kStart + 10);  // merged: [0, 5000)
  ASSERT_EQ(device.live_regions(), 1u);
  use(virtual_pages(1000, 4500), kStart + 20);  // cannot be merged: [1000, 5500)
  ASSERT_EQ(device.live_regions(), 2u);
  recent = {};
  use(buffer, kStart + 30);  // found in the second
  settle(kStart + kSecond);
  settle(kStart + 10 * kSecond);
  EXPECT_EQ(device.live_regions(), 0u);
}

// A buffer in steady use schedules one later look for all its uses.
TEST_F(RetentionTest, UseTakesBackTheLaterLook) {
  costs.registration = LinearFit(0, 50.0 * kMillisecond);  // too dear for a trial
  const Range buffer = virtual_pages(0, 4);
  Time time = kStart;
  for (int i = 0; i < 1000; ++i, time += 50 * kMicrosecond) {
    use(buffer, time);
    if (i == 0) continue;
    EXPECT_EQ(what(time), Kind::sleep);
    // The deadline is 50 us away, the least patience 10 ms.
    ASSERT_EQ(retention.next_deadline(), time + 50 * kMicrosecond + 10 * kMillisecond);
  }
}

// The deadline passes while the region is being deregistered: the use can come at any moment, and the region
// is registered again at once.
TEST_F(RetentionTest, DeadlineThatPassesDuringTheDeregistration) {
  const Range buffer = virtual_pages(0, 100);
  learn(buffer);
  const auto action = retention.next(kStart + kPeriod);
  deregister(action, kStart + 2 * kPeriod + kMillisecond);
  EXPECT_EQ(what(kStart + 2 * kPeriod + kMillisecond), Kind::register_ahead);
}

TEST_F(RetentionTest, UseInTimeTakesTheItemOutOfTheQueue) {
  const Range buffer = virtual_pages(0, 100);
  learn(buffer);
  settle(kStart + kPeriod);
  ASSERT_EQ(retention.queue().size(), 1u);
  EXPECT_TRUE(use(buffer, kStart + kPeriod + kPeriod / 2));
  EXPECT_TRUE(retention.queue().empty());
  EXPECT_EQ(retention.score().late, 2u);  // and the second one of learn()
}

// Each region alone could go, but not all could come back in time: some stay.
TEST_F(RetentionTest, LetsGoOnlyWhatTheQueueHasRoomFor) {
  costs.registration = LinearFit(0, 950000);
  costs.deregistration = kFree;
  costs.wake = WakeMargin(0);
  costs.queue = {0, 0};
  const auto buffer = [](std::size_t i) { return virtual_pages(10 * i, 4); };
  for (std::size_t i = 0; i < 20; ++i) use(buffer(i), kStart);
  settle(kStart);
  for (std::size_t i = 0; i < 20; ++i) use(buffer(i), kStart + kPeriod);
  settle(kStart + kPeriod);
  // 10 ms until all are due, 0.95 ms each.
  EXPECT_EQ(retention.queue().size(), 10u);
  EXPECT_EQ(device.live_regions(), 10u);
  EXPECT_EQ(retention.queue().first().deadline, kStart + 2 * kPeriod - 9 * 950 * kMicrosecond);
}

TEST_F(RetentionTest, MemoryEventDropsQueuedWorkAndBuffers) {
  const Range gone = virtual_pages(0, 100), stays = virtual_pages(200, 100);
  for (const Range& buffer : {gone, stays}) use(buffer, kStart);
  settle(kStart);
  for (const Range& buffer : {gone, stays}) use(buffer, kStart + kPeriod);
  settle(kStart + kPeriod);
  ASSERT_EQ(retention.queue().size(), 2u);
  // One page in the middle of it.
  retention.memory_event(virtual_pages(50, 1));
  EXPECT_EQ(retention.buffers(), 1u);
  ASSERT_EQ(retention.queue().size(), 1u);
  const auto action = retention.next(kStart + 2 * kPeriod);
  EXPECT_EQ(action.kind, Kind::register_ahead);
  EXPECT_EQ(action.pages, stays);
  // Its history is gone as well: the next use is a first one.
  EXPECT_FALSE(use(gone, kStart + 2 * kPeriod));
  EXPECT_EQ(retention.score().reuses, 2u);
}

TEST_F(RetentionTest, MemoryEventDropsALaterLook) {
  const Range buffer = virtual_pages(0, 4);
  use(buffer, kStart);
  use(buffer, kStart + 50 * kMicrosecond);
  EXPECT_EQ(what(kStart + 50 * kMicrosecond), Kind::sleep);
  EXPECT_NE(retention.next_deadline(), kNever);
  retention.memory_event(buffer);
  EXPECT_EQ(retention.next_deadline(), kNever);
}

// The helper has learnt no use of these: letting them go would make the next ones late.
TEST_F(RetentionTest, SweptRegionsStayForTheirNextUse) {
  HelperRetention nobody(domain, told, costs, {});
  const Range used = virtual_pages(0, 4), unused = virtual_pages(10, 4);
  use(nobody, used, kStart);
  use(nobody, unused, kStart);
  EXPECT_EQ(what(kStart), Kind::sleep);
  retention.sweep();
  settle(kStart);
  EXPECT_EQ(device.live_regions(), 2u);
  const Time trial = retention.next_deadline();
  ASSERT_NE(trial, kNever);
  // A further sweep defers nothing.
  retention.sweep();
  settle(trial - 1);
  EXPECT_EQ(device.live_regions(), 2u);
  EXPECT_EQ(retention.next_deadline(), trial);
  use(used, trial - 1);
  settle(trial - 1);
  EXPECT_EQ(device.live_regions(), 1u) << "used once, as far as is known";
  settle(trial);
  EXPECT_EQ(device.live_regions(), 0u);
}

TEST_F(RetentionTest, ObserveNeverActs) {
  HelperRetention::Settings settings;
  settings.act = false;
  HelperRetention observer(domain, shortest, costs, settings);
  for (int i = 0; i < 10; ++i) {
    use(observer, virtual_pages(0, 100), kStart + i * kPeriod);
    for (const Duration later : {Duration{0}, kPeriod - 1}) {
      const auto action = observer.next(kStart + i * kPeriod + later);
      EXPECT_EQ(action.kind, Kind::sleep);
      EXPECT_EQ(action.wake_at, kNever);
    }
  }
  observer.sweep();
  EXPECT_EQ(observer.next(kStart + kSecond).kind, Kind::sleep);
  EXPECT_EQ(device.registrations(), 1u);
  EXPECT_EQ(device.deregistrations(), 0u);
  EXPECT_EQ(observer.score().reuses, 9u);
  EXPECT_EQ(observer.score().within_0_5, 8u);
}

// Its own on-demand registration must not teach the predictor a longer period than the program's.
TEST_F(RetentionTest, WaitsForRegistrationAreNotTheProgramsTime) {
  // Three uses of a program with a period of 10 ms, which waits 3 ms on the first one.
  const Range buffer = virtual_pages(0, 100);
  const Duration waited = 3 * kMillisecond;
  const auto used = [&](Time time, Duration delayed) {
    retention.use(lease_of(buffer, time, time, 1), {}, delayed);
  };
  used(kStart, 0);
  used(kStart + waited + kPeriod, waited);
  used(kStart + waited + 2 * kPeriod, waited);
  EXPECT_EQ(retention.score().reuses, 2u);
  EXPECT_EQ(retention.score().within_0_5, 1u);
}

// ---- bounds ----

TEST_F(RetentionTest, MillionBuffersUsedOnceTakeBoundedMemory) {
  std::size_t most = 0, most_entries = 0;
  for (std::size_t i = 0; i < 1000000; ++i) {
    const Time time = kStart + static_cast<Time>(i) * 1000;
    retention.use(lease_of(virtual_pages(i, 1), time, time, 1), {}, 0);
    retention.next(time);
    most = std::max(most, retention.buffers());
    most_entries = std::max(most_entries, shortest.entries());
  }
  EXPECT_LE(most, 16384u + 1);
  EXPECT_LE(most_entries, 16384u + 1);
}

TEST_F(RetentionTest, SweptBuffersTakeBoundedMemory) {
  HelperRetention nobody(domain, told, costs, {});
  for (std::size_t i = 0; i < 40000; ++i) {
    const Time now = kStart + static_cast<Time>(i) * kSecond;
    use(nobody, virtual_pages(2 * i, 1), now);
    retention.sweep();
    settle(now);
    ASSERT_LE(retention.buffers(), 16384u + 1);
  }
}

TEST_F(RetentionTest, OneBufferInEverNewContextsTakesBoundedMemory) {
  ShortestPredictor predictor(2);
  for (std::uint64_t i = 0; i < 100000; ++i)
    predictor.observe({0, i, virtual_pages(0, 1).begin, CallKind::send, 0, static_cast<Time>(i)});
  EXPECT_LE(predictor.entries(), 32u);
}

// ---- the registration queue ----

std::vector<Time> deadlines(const RegistrationQueue& queue) {
  std::vector<Time> all;
  queue.for_each([&](const auto& item) { all.push_back(item.deadline); });
  return all;
}

TEST(RegistrationQueue, FarItemsKeepTheirDeadlines) {
  RegistrationQueue queue;
  queue.insert(1, 1000, 10);
  queue.insert(2, 1010, 10);
  queue.insert(3, 990, 10);
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{990, 1000, 1010}));
}

TEST(RegistrationQueue, LaterItemStandsAndEarlierOnesMakeRoom) {
  RegistrationQueue queue;
  queue.insert(1, 1000, 10);
  queue.insert(2, 1000, 10);  // served before: by 990
  queue.insert(3, 995, 10);   // between both there is no room: by 980
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{980, 990, 1000}));
  queue.insert(4, 1005, 20);  // its service begins at 985: all before move, 3 by 5 less 20
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{965, 975, 985, 1005}));
}

// A short registration right before a long one: the long one must fit in between.
TEST(RegistrationQueue, GapIsWhatTheLaterItemTakes) {
  RegistrationQueue queue;
  queue.insert(1, 100, 1);
  queue.insert(2, 101, 50);
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{51, 101}));
  RegistrationQueue other;
  other.insert(2, 101, 50);
  other.insert(1, 100, 1);
  EXPECT_EQ(deadlines(other), (std::vector<Time>{51, 101}));
}

TEST(RegistrationQueue, Room) {
  RegistrationQueue queue;
  EXPECT_EQ(queue.room(1000, 10), 1000);
  queue.insert(1, 1000, 10);
  EXPECT_EQ(queue.room(1020, 10), 1020);
  EXPECT_EQ(queue.room(1010, 10), 1010);
  EXPECT_EQ(queue.room(1009, 10), 999);  // the first must be served right before
  EXPECT_EQ(queue.room(1000, 10), 990);  // before it
  EXPECT_EQ(queue.room(500, 10), 500);
}

TEST(RegistrationQueue, InsertAgainMoves) {
  RegistrationQueue queue;
  queue.insert(1, 1000, 10);
  queue.insert(1, 2000, 10);
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{2000}));
  queue.remove(1);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.contains(1));
  queue.remove(1);
}

TEST(RegistrationQueue, RandomInsertsAndRemovesKeepOrderAndSpacing) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    RegistrationQueue queue;
    std::map<BufferId, Time> asked;
    for (int i = 0; i < 1000; ++i) {
      const auto buffer = static_cast<BufferId>(random() % 50);
      if (random() % 3 == 0) {
        queue.remove(buffer);
        asked.erase(buffer);
      } else {
        const Time deadline = 100000 + static_cast<Time>(random() % 3000);
        const Duration service = 1 + static_cast<Duration>(random() % 100);
        queue.remove(buffer);
        const Time room = queue.room(deadline, service);
        queue.insert(buffer, deadline, service);
        asked[buffer] = deadline;
        queue.for_each([&](const auto& item) {
          if (item.buffer == buffer) {
            EXPECT_LE(room, item.deadline);
          }
        });
      }
      ASSERT_EQ(queue.size(), asked.size());
      Time before = 0;
      queue.for_each([&](const auto& item) {
        ASSERT_GE(item.deadline - item.service, before);
        ASSERT_LE(item.deadline, asked.at(item.buffer));
        before = item.deadline;
      });
    }
  }
}

// ---- deadlines ----

TEST(Deadlines, TheEarliestIsFirstWhateverMoves) {
  std::mt19937 random(1);
  Deadlines deadlines;
  std::map<BufferId, Time> times;
  for (int i = 0; i < 5000; ++i) {
    const auto buffer = static_cast<BufferId>(random() % 60);
    const Time time = random() % 4 == 0 ? kNever : static_cast<Time>(random() % 100);  // many are equal
    deadlines.set(buffer, time);
    if (time == kNever)
      times.erase(buffer);
    else
      times[buffer] = time;
    std::vector<Deadlines::Item> expected;
    for (const auto& [id, at] : times) expected.push_back({at, id});
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(deadlines.in_order(), expected);
    ASSERT_EQ(deadlines.empty(), expected.empty());
    if (!expected.empty()) {
      ASSERT_EQ(deadlines.first(), expected.front());
    }
  }
}

TEST(RecentLargest, IsTheNthOfTheLast32) {
  std::mt19937 random(1);
  RecentLargest<Duration, 1> largest{7};
  RecentLargest<Duration, 3> third{7};
  std::deque<Duration> recent(32, 7);
  for (int i = 0; i < 2000; ++i) {
    const auto value = static_cast<Duration>(random() % 40);
    largest.observe(value);
    third.observe(value);
    recent.push_back(value);
    recent.pop_front();
    std::vector<Duration> sorted(recent.begin(), recent.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    ASSERT_EQ(largest.value(), sorted[0]);
    ASSERT_EQ(third.value(), sorted[2]);
  }
}

// ---- the predictor ----

constexpr Time ms(std::int64_t n) { return n * kMillisecond; }

void observe(Predictor& predictor, BufferId buffer, Time time, std::uint64_t site = 1, Address address = 0) {
  Use use;
  use.buffer = buffer;
  use.site = site;
  use.address = address;
  use.kind = CallKind::send;
  use.time = use.end = time;
  predictor.observe(use);
}

TEST(ShortestPredictor, LastUsePlusShortestInterval) {
  ShortestPredictor predictor(0);
  observe(predictor, 0, ms(0));
  EXPECT_EQ(predictor.next_use(0, ms(0)), kNever);
  observe(predictor, 0, ms(100));
  EXPECT_EQ(predictor.next_use(0, ms(100)), ms(200));
  observe(predictor, 0, ms(190));
  EXPECT_EQ(predictor.next_use(0, ms(190)), ms(280));
  observe(predictor, 0, ms(300));
  EXPECT_EQ(predictor.next_use(0, ms(300)), ms(390));
  EXPECT_EQ(predictor.next_use(0, ms(389)), ms(390));
  EXPECT_EQ(predictor.next_use(0, ms(390)), kNever);
  predictor.forget(0);
  EXPECT_EQ(predictor.next_use(0, 0), kNever);
  EXPECT_EQ(predictor.entries(), 0u);
}

// "We use the shortest observed time": one short interval stays for good.
TEST(ShortestPredictor, OneShortIntervalPoisonsItForGood) {
  ShortestPredictor predictor(0);
  Time time = 0;
  for (int i = 0; i < 10; ++i) observe(predictor, 0, time += ms(100));
  observe(predictor, 0, time += ms(1));
  for (int i = 0; i < 1000; ++i) observe(predictor, 0, time += ms(100));
  EXPECT_EQ(predictor.next_use(0, time), time + ms(1));
}

// Messages of two sizes from one address and one site, in turn.
TEST(ShortestPredictor, SizesInTurnAreLearntEach) {
  ShortestPredictor predictor(0);
  for (int i = 0; i < 6; ++i) observe(predictor, i % 2 ? 1 : 0, ms(10 * i), 1, 4096);
  EXPECT_EQ(predictor.next_use(0, ms(50)), ms(60));
  EXPECT_EQ(predictor.next_use(1, ms(50)), ms(70));
}

TEST(ShortestPredictor, UsesOutOfOrderTeachNothing) {
  ShortestPredictor predictor(0);
  observe(predictor, 0, ms(0));
  observe(predictor, 0, ms(100));
  observe(predictor, 0, ms(99));
  EXPECT_EQ(predictor.next_use(0, ms(100)), ms(200));
}

// The paper's Figure 4, three turns of inner loop 1 and two of inner loop 2, every 100 ms:
//   buf1 at 0, 10, 20, buf2 at 30, 37; buf1 at 100, 110, 120, buf2 at 130, 137; ...
class NestedLoops : public ::testing::TestWithParam<unsigned> {
 protected:
  ShortestPredictor predictor{GetParam()};
  static constexpr BufferId kBuf1 = 0, kBuf2 = 1;

  /// All uses before `end`, from `begin` on.
  void run(Time begin, Time end) {
    for (Time outer = 0; outer < end; outer += ms(100)) {
      for (const auto& [at, buffer] :
           {std::pair{0, kBuf1}, {10, kBuf1}, {20, kBuf1}, {30, kBuf2}, {37, kBuf2}}) {
        const Time time = outer + ms(at);
        if (time >= begin && time < end) observe(predictor, buffer, time, 1 + buffer, 4096 * (1 + buffer));
      }
    }
  }
  Time after(std::int64_t at) {
    run(seen_, ms(at) + 1);
    seen_ = ms(at) + 1;
    return predictor.next_use(kBuf1, ms(at));
  }
  Time seen_ = 0;
};
using Window0 = NestedLoops;
using Window1 = NestedLoops;
using Window2 = NestedLoops;

// One period for all: that of the loop. The first turn of the next outer iteration is announced 70 ms early.
TEST_P(Window0, HasOnePeriodForAllTurns) {
  EXPECT_EQ(after(500), ms(510));
  EXPECT_EQ(after(510), ms(520));
  EXPECT_EQ(after(520), ms(530));
  EXPECT_EQ(predictor.entries(), 2u);
}
INSTANTIATE_TEST_SUITE_P(Length, Window0, ::testing::Values(0u));

// First turns (after buf2) every 100 ms, others (after buf1) every 10. On the first turn, the others' last
// prediction (420 + 10) is past: the second turn is not predicted. On the last one, they predict one more.
// Entries: buf1 after nothing, buf2, buf1; buf2 after buf1, buf2.
TEST_P(Window1, TellsFirstTurnsFromOthers) {
  EXPECT_EQ(after(500), ms(600));
  EXPECT_EQ(after(510), ms(520));
  EXPECT_EQ(after(520), ms(530));
  EXPECT_EQ(predictor.entries(), 5u);
}
INSTANTIATE_TEST_SUITE_P(Length, Window1, ::testing::Values(1u));

// Each of the three turns has a context of its own, with a period of 100 ms: all predictions are right.
// Entries: buf1 after {}, {buf1}, {buf1, buf1}, {buf2, buf2}, {buf1, buf2}; buf2 after {buf1, buf1}, {buf2,
// buf1}.
TEST_P(Window2, TellsThreeTurnsApart) {
  EXPECT_EQ(after(500), ms(510));
  EXPECT_EQ(after(510), ms(520));
  EXPECT_EQ(after(520), ms(600));
  EXPECT_EQ(predictor.entries(), 7u);
}
INSTANTIATE_TEST_SUITE_P(Length, Window2, ::testing::Values(2u));

TEST(ContextWindow, ThreadsHaveContextsOfTheirOwn) {
  ContextWindow one(2), two(2);
  const Use a{0, 1, 4096, CallKind::send, 0, 0}, b{1, 2, 8192, CallKind::receive, 0, 0};
  Use other = b;
  other.thread = 7;
  one.enter(a);
  one.enter(other);  // does not come between
  two.enter(a);
  EXPECT_EQ(one.enter(b), two.enter(b));
}

// ---- the score ----

TEST_F(RetentionTest, ScoreByHand) {
  // At 1000 ms: no prediction, wrong. At 2000: exact. At 2990: predicted 3000, 10 of 990 ms off, 1.01 %. At
  // 4000: predicted 2990 + 990 = 3980, 20 of 1010 ms off, 1.98 %. At 6000: predicted 4990, half of 2000 ms
  // off.
  for (const int at : {0, 1000, 2000, 2990, 4000, 6000}) {
    use(virtual_pages(0, 4), kStart + ms(at));
    settle(kStart + ms(at));
  }
  const PredictionScore& score = retention.score();
  EXPECT_EQ(score.reuses, 5u);
  EXPECT_EQ(score.within_0_5, 1u);
  EXPECT_EQ(score.within_5, 3u);
  EXPECT_EQ(score.at_release_within_0_5, 1u);
  EXPECT_EQ(score.at_release_within_5, 3u);
  EXPECT_EQ(score.late, 5u);  // nobody registered ahead
}

TEST_F(RetentionTest, ScoreHasTwoHorizons) {
  HelperRetention judged(domain, told, costs, {});
  // At release it predicts 4 % too early, later exactly; then the other way round.
  told.next = kStart + ms(96);
  use(judged, virtual_pages(0, 4), kStart);
  told.next = kStart + ms(100);
  use(judged, virtual_pages(0, 4), kStart + ms(100));
  EXPECT_EQ(judged.score().at_release_within_0_5, 0u);
  EXPECT_EQ(judged.score().at_release_within_5, 1u);
  EXPECT_EQ(judged.score().within_0_5, 1u);
  EXPECT_EQ(judged.score().within_5, 1u);
  told.next = kStart + ms(400);
  use(judged, virtual_pages(0, 4), kStart + ms(200));
  told.next = kNever;
  use(judged, virtual_pages(0, 4), kStart + ms(400));
  EXPECT_EQ(judged.score().reuses, 3u);
  EXPECT_EQ(judged.score().at_release_within_0_5, 1u);
  EXPECT_EQ(judged.score().within_0_5, 1u);
}

// ---- cost estimates ----

TEST(LinearFit, PriorIsItsLine) {
  const LinearFit fit(246, 16000);
  EXPECT_EQ(fit.expected(1), 16246);
  EXPECT_EQ(fit.expected(1024), 246 * 1024 + 16000);
  EXPECT_EQ(fit.upper(1024), fit.expected(1024));
}

TEST(LinearFit, RecoversAAndB) {
  LinearFit fit(246, 16000);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t pages = 1 + random() % 20000;
    fit.observe(pages, 57 * static_cast<Duration>(pages) + 1500);
  }
  EXPECT_NEAR(fit.a(), 57, 0.01);
  EXPECT_NEAR(fit.b(), 1500, 20);
}

TEST(LinearFit, FollowsADeviceThatChanges) {
  LinearFit fit(246, 16000);
  for (const double a : {100.0, 1000.0, 50.0}) {
    for (std::size_t i = 0; i < 1000; ++i)
      fit.observe(1 + 97 * i % 4096,
                  static_cast<Duration>(a * static_cast<double>(1 + 97 * i % 4096)) + 2000);
    EXPECT_NEAR(fit.a(), a, 0.01 * a);
  }
}

TEST(LinearFit, OneSizeOnlyGivesItsMean) {
  LinearFit fit(246, 16000);
  for (int i = 0; i < 10000; ++i) fit.observe(16384, 4000000);
  EXPECT_NEAR(static_cast<double>(fit.expected(16384)), 4e6, 10);
  EXPECT_GE(fit.a(), 0);
  EXPECT_GE(fit.b(), 0);
}

TEST(LinearFit, NeverNegative) {
  LinearFit fit(246, 16000);
  // The larger the faster: a line of that slope is rejected.
  for (int i = 0; i < 100; ++i) {
    fit.observe(10, 1000000);
    fit.observe(10000, 1000);
  }
  EXPECT_GE(fit.a(), 0);
  for (const std::size_t pages : {1, 100, 100000}) EXPECT_GE(fit.expected(pages), 0);
  // Lines through the origin: b is only rounding.
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t pages = 1 + random() % 99;
    fit.observe(pages, static_cast<Duration>(pages * (10 + random() % 40)));
    ASSERT_GE(fit.b(), 0);
  }
}

TEST(LinearFit, UpperEstimateCoversTheWorstOfLateAndForgetsSlowly) {
  LinearFit fit(0, 10000);
  for (int i = 0; i < 100; ++i) fit.observe(1, 10000);
  EXPECT_EQ(fit.upper(1), fit.expected(1));
  fit.observe(1, 20000);  // twice the line's value
  EXPECT_NEAR(static_cast<double>(fit.upper(1)), 2.0 * static_cast<double>(fit.expected(1)), 300);
  fit.observe(1, 10000);
  EXPECT_GT(fit.upper(1), fit.expected(1) * 18 / 10);
  for (int i = 0; i < 200; ++i) fit.observe(1, 10000);
  EXPECT_NEAR(static_cast<double>(fit.upper(1)), static_cast<double>(fit.expected(1)), 100);
  fit.observe(1, kSecond);  // a stall counts four times at most
  EXPECT_LE(fit.upper(1), 4 * fit.expected(1));
}

TEST(WakeMargin, ThirdLargestOfTheLast32) {
  WakeMargin margin(60);
  EXPECT_EQ(margin.value(), 60);
  margin.observe(1000000);
  margin.observe(1000000);
  EXPECT_EQ(margin.value(), 60);  // deaf to two stalls
  margin.observe(500);
  EXPECT_EQ(margin.value(), 500);
  for (int i = 0; i < 32; ++i) margin.observe(i);  // 0 ... 31
  EXPECT_EQ(margin.value(), 29);
  for (int i = 0; i < 32; ++i) margin.observe(-5);  // woken before time
  EXPECT_EQ(margin.value(), 0);
}

}  // namespace
}  // namespace pinion
