// What goes while memory is short, and what the desk does meanwhile.
#include <gtest/gtest.h>

#include "retention/desk.h"
#include "retention/retention.h"
#include "retention/shortage.h"
#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;
using test::RegistryTest;

constexpr Time kNow = 10 * kSecond;

/// Registers ahead whenever it is asked.
class Eager final : public Retention {
 public:
  Action next(Time) override {
    if (wanted == 0) return {};
    Action action;
    action.kind = Action::Kind::register_ahead;
    action.pages = pages(50, 52);
    return action;
  }
  void done(const Action&, RegionRef, bool ok, Duration, Time) override {
    --wanted;
    refused += !ok;
  }
  void evicted(Range range, Time) override { gone.push_back(range); }
  int wanted = 0, refused = 0;
  std::vector<Range> gone;
};

class UnderPressure : public RegistryTest {
 protected:
  Desk desk{{.traits = traits_of(RetentionKind::helper), .time_budget = {}, .scale = {}}};
  KeptDomain kept;
  Eager* retention = nullptr;

  void SetUp() override {
    RegistryTest::SetUp();
    kept.domain = domain.get();
    auto eager = std::make_unique<Eager>();
    retention = eager.get();
    kept.retention = std::move(eager);
    desk.add(kept);
  }
  Desk::Job next(Time now = kNow) {
    return desk.next(now, [] {});
  }
  void carry_out(const Desk::Job& job) {
    for (Region* region : job.regions) retire_claimed(*domain, region, Actor::helper);
    desk.done(job, {}, true, 0, kNow);
  }
  /// The regions that go at one look, in their order.
  std::vector<Range> all_that_go(Time now = kNow) {
    std::vector<Range> ranges;
    for (Desk::Job job; (job = next(now)).kind == Desk::Job::Kind::deregister;) {
      for (const Region* region : job.regions) ranges.push_back(region->range());
      carry_out(job);
    }
    return ranges;
  }
  runlog::Counters counters() {
    runlog::Counters counters{};
    desk.add_to(counters, kNow);
    return counters;
  }
};

TEST_F(UnderPressure, NothingGoesWhileMemoryIsNotShort) {
  idle(pages(0, 2));
  EXPECT_EQ(next().kind, Desk::Job::Kind::none);
  desk.see_memory(*budget, false);
  EXPECT_EQ(next().kind, Desk::Job::Kind::none);
  EXPECT_EQ(counters().pressure_releases, 0u);
}

TEST_F(UnderPressure, TheFarthestNextUseGoesFirst) {
  expected(pages(0, 2), 5, 20 * kSecond);
  expected(pages(10, 12), 1, 90 * kSecond);
  idle(pages(20, 22), 4);  // no use is expected: the longer unused one goes first
  idle(pages(30, 32), 3);
  Region* leased = acquire(pages(40, 42));
  desk.see_memory(*budget, true);
  const std::vector<Range> order{pages(30, 32), pages(20, 22), pages(10, 12), pages(0, 2)};
  EXPECT_EQ(all_that_go(), order);
  EXPECT_EQ(retention->gone, order);
  EXPECT_EQ(counters().pressure_released_bytes, pages_bytes(8));
  EXPECT_EQ(counters().pressure_releases, 1u);
  domain->release(leased);
}

TEST_F(UnderPressure, ABufferInUseStaysBetweenTwoUses) {
  idle(pages(0, 2), kNow - 99 * kMillisecond);
  idle(pages(10, 12), kNow - 100 * kMillisecond);
  desk.see_memory(*budget, true);
  EXPECT_EQ(all_that_go(), std::vector{pages(10, 12)});
  EXPECT_TRUE(all_that_go(kNow + kSecond).empty()) << "until the next look";
  desk.see_memory(*budget, true);
  EXPECT_EQ(all_that_go(kNow + kSecond), std::vector{pages(0, 2)});
}

// Else a buffer in use would go: its hits have left no time.
TEST_F(UnderPressure, WhereHitsLeaveNoTimeTheSecondLookDecides) {
  kept.untimed_hits = true;
  idle(pages(0, 2));
  desk.see_memory(*budget, true);
  EXPECT_TRUE(all_that_go().empty());
  EXPECT_TRUE(domain->pressed());
  idle(pages(10, 12), kNow + 60 * kMillisecond);
  desk.see_memory(*budget, true);
  EXPECT_EQ(all_that_go(kNow + 110 * kMillisecond), std::vector{pages(0, 2)});
}

TEST_F(UnderPressure, ASettledRegionStays) {
  idle(pages(0, 2));
  domain->idle_regions().front().region->settled = true;
  desk.see_memory(*budget, true);
  EXPECT_TRUE(all_that_go().empty());
}

TEST_F(UnderPressure, TheEndOfTheShortageSparesTheRest) {
  idle(pages(0, 2), 1);
  idle(pages(10, 12), 2);
  desk.see_memory(*budget, true);
  carry_out(next());
  desk.see_memory(*budget, false);
  EXPECT_TRUE(all_that_go().empty());
  EXPECT_TRUE(hits(pages(10, 12)));
  EXPECT_FALSE(hits(pages(0, 2)));
  for (const bool is_short : {true, true, false, true, false}) {
    desk.see_memory(*budget, is_short);
    idle(pages(20, 22), 3);
    all_that_go();
  }
  EXPECT_EQ(counters().pressure_releases, 3u) << "shortages, not looks";
}

TEST_F(UnderPressure, NothingIsRegisteredAhead) {
  desk.see_memory(*budget, true);
  retention->wanted = 3;
  EXPECT_EQ(next().kind, Desk::Job::Kind::none);
  EXPECT_EQ(retention->refused, 3);
  desk.see_memory(*budget, false);
  retention->wanted = 1;
  EXPECT_EQ(next().kind, Desk::Job::Kind::register_ahead);
}

TEST_F(UnderPressure, ARegistrationThatWaitsForRoomIsGivenUp) {
  limit(pages_bytes(2));
  kept.domain = domain.get();
  Region* holder = acquire(pages(0, 2));
  retention->wanted = 1;
  const Desk::Job job = next();
  ASSERT_EQ(job.kind, Desk::Job::Kind::register_ahead);
  desk.done(job, {}, false, 0, kNow);
  EXPECT_NE(desk.next_deadline(), kNever) << "it waits for room";
  retention->wanted = 0;
  desk.see_memory(*budget, true);
  EXPECT_EQ(desk.next_deadline(), kNever);
  domain->release(holder);
}

TEST_F(UnderPressure, ObservedDomainsAndDevicesThatPinNothingAreLeftAlone) {
  idle(pages(0, 2));
  kept.observed = true;
  desk.see_memory(*budget, true);
  EXPECT_TRUE(all_that_go().empty());
}

}  // namespace
}  // namespace pinion
