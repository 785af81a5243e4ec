// Decisions against schedules worked out by hand, and their bounds.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixture.h"
#include "predict/paper_predictors.h"

namespace pinion::helper_test {
namespace {

// ---- decisions ----

TEST_F(RetentionTest, FirstUseIsLetGoAtOnceAndNotQueued) {
  use(virtual_pages(0, 4), kStart);
  settle(kStart);
  EXPECT_EQ(device.live_regions(), 0u);
  EXPECT_TRUE(retention.queue().empty());
  EXPECT_EQ(retention.next_deadline(), kNever);
}

TEST_F(RetentionTest, WhatIsCheapToKeepGoesWhileTheNodeIsShortOfMemory) {
  HelperRetention::Settings settings;
  settings.keeps_until_short = true;
  HelperRetention keeps(domain, shortest, costs, settings);
  use(keeps, virtual_pages(0, 4), kStart);
  EXPECT_EQ(keeps.next(kStart).kind, Kind::sleep);
  use(keeps, virtual_pages(10, 4), kStart);
  budget.set_memory_short(true);
  const auto action = keeps.next(kStart);
  ASSERT_EQ(action.kind, Kind::deregister);
  EXPECT_EQ(action.pages, virtual_pages(10, 4));
  retire_claimed(domain, action.region, Actor::helper);
  keeps.done(action, {}, true, 0, kStart);
  budget.set_memory_short(false);
  use(keeps, virtual_pages(10, 4), kStart + kPeriod);
  EXPECT_EQ(keeps.next(kStart + kPeriod).kind, Kind::sleep);
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

TEST_F(RetentionTest, RangesOfBytesAreBuffersOfTheirOwnInAPage) {
  CostModel nic = RetentionTest::nic();
  nic.byte_ranges = true;
  ModelDevice of_bytes(nic);
  domain.reopen(of_bytes, budget);
  const Range page = virtual_pages(0, 1);
  const Range first{page.begin + 100, page.begin + 200}, second{page.begin + 200, page.begin + 300};
  for (const Time time : {kStart, kStart + kPeriod}) {
    use(first, time);
    use(second, time);
    settle(time);
  }
  EXPECT_EQ(of_bytes.live_regions(), 0u);
  ASSERT_EQ(retention.queue().size(), 2u);
  std::vector<Range> ahead;
  const Time due = kStart + 2 * kPeriod;
  for (auto action = retention.next(due); action.kind == Kind::register_ahead; action = retention.next(due)) {
    ahead.push_back(action.pages);
    register_ahead(action, due);
  }
  std::sort(ahead.begin(), ahead.end(), [](Range a, Range b) { return a.begin < b.begin; });
  EXPECT_EQ(ahead, (std::vector{first, second}));
  EXPECT_EQ(of_bytes.live_regions(), 2u);
  EXPECT_FALSE(use(first, due)) << "in time";
  retire_all(domain, Actor::helper);
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
  const Time look = kStart + 20 * kMillisecond + 100 * kMicrosecond + kMillisecond;
  auto action = retention.next(kStart + 20 * kMillisecond + 50 * kMicrosecond);
  EXPECT_EQ(action.kind, Kind::sleep);
  // It looks when the use should be over: its only work is to learn of it.
  const Time over = kStart + 20 * kMillisecond + 100 * kMicrosecond + kOver;
  EXPECT_EQ(action.wake_at, over);
  expect_wakes(over, look);
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
  const Time over = kStart + 2 * period + kOver, patience_ends = kStart + 2 * period + kMillisecond;
  EXPECT_EQ(retention.next_deadline(), over);
  expect_wakes(over, patience_ends);
  EXPECT_EQ(what(patience_ends - 1), Kind::sleep);
  settle(patience_ends);
  EXPECT_EQ(device.live_regions(), 0u);
  EXPECT_EQ(retention.next_deadline(), kNever);
}

TEST_F(RetentionTest, AnOverdueUseIsWaitedForNoLongerForWhatIsDecidedMeanwhile) {
  costs.registration = LinearFit(0, 50.0 * kMillisecond);
  const Range buffer = virtual_pages(0, 4);
  use(buffer, kStart);
  use(buffer, kStart + 50 * kMicrosecond);
  const Time first = kStart + kMillisecond;  // the third is overdue by then
  EXPECT_EQ(what(first), Kind::sleep);
  for (int i = 1; i < 9; ++i) {
    retention.evicted(buffer, first + i * 100 * kMicrosecond);
    EXPECT_EQ(what(first + i * 100 * kMicrosecond), Kind::sleep);
  }
  settle(first + kMillisecond);
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
  // The buffer is all there is, and a lost second is worth half a second of holding everything.
  const Duration patience = retention.next_deadline() - (kStart + 2 * period);
  EXPECT_LE(patience, registration / 2);
  EXPECT_GT(patience, 7 * registration / 16);
  settle(kStart + 2 * period + patience);
  EXPECT_EQ(device.live_regions(), 0u);
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
  costs.registration = LinearFit(0, 50.0 * kMillisecond);
  const Range buffer = virtual_pages(0, 4);
  Time time = kStart;
  for (int i = 0; i < 1000; ++i, time += 50 * kMicrosecond) {
    use(buffer, time);
    if (i == 0) continue;
    EXPECT_EQ(what(time), Kind::sleep);
    // The deadline is 50 us away, the least patience 1 ms.
    ASSERT_EQ(retention.next_deadline(), time + 50 * kMicrosecond + kMillisecond);
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
  const Time known = retention.next_deadline();
  ASSERT_NE(known, kNever);
  // A further sweep defers nothing.
  retention.sweep();
  settle(known - 1);
  EXPECT_EQ(device.live_regions(), 2u);
  EXPECT_EQ(retention.next_deadline(), known);
  use(used, known - 1);
  settle(known - 1);
  EXPECT_EQ(device.live_regions(), 1u) << "used once, as far as is known";
  settle(known);
  EXPECT_EQ(device.live_regions(), 0u);
}

TEST_F(RetentionTest, WhileTheHelperRestsHitsLeaveNoRecords) {
  told.samples = true;
  HelperRetention who{domain, told, costs, {}};
  const Range known = virtual_pages(0, 10), fresh = virtual_pages(20, 10);
  use(who, known, kStart);
  Region* const region = acquire(known);
  const RegionRef ref{region, region->generation()};
  who.used_at_rest(lease_of(known, kStart + 10, kStart + 20), ref);
  EXPECT_TRUE(region->settled.load());
  Region* const other = acquire(fresh);
  who.used_at_rest(lease_of(fresh, kStart + 10, kStart + 20), {other, other->generation()});
  EXPECT_FALSE(other->settled.load()) << "nothing is learnt of new buffers";
  domain.release(region);
  domain.release(other);
  who.sweep();
  EXPECT_FALSE(region->settled.load());
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

}  // namespace
}  // namespace pinion::helper_test
