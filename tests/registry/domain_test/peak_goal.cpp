// The goal for the peak (registry/peak_goal.h): a limit that gives way.
#include "fixture.h"

namespace pinion::domain_test {
namespace {

class PeakGoalTest : public RegistryTest {
 protected:
  PeakGoalTest() { begin(UINT64_MAX); }
  void begin(std::uint64_t bytes) {
    limit(bytes);
    budget->peak_goal().pursue(true);
    budget->peak_goal().grant(1e6);
  }
};

TEST_F(PeakGoalTest, IdleRegionsGoForIt) {
  idle(pages(0, 4));
  idle(pages(10, 14));
  EXPECT_EQ(device.peak(), pages_bytes(4));
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_TRUE(hits(pages(10, 14)));
}

TEST_F(PeakGoalTest, MemoryIsNotShortForIt) {
  idle(pages(0, 4));
  idle(pages(10, 14));
  EXPECT_EQ(device.live(), 1u);
  EXPECT_TRUE(domain->pressed());
  EXPECT_FALSE(domain->has_been_short());
}

TEST_F(PeakGoalTest, ALimitBelowItIsAShortage) {
  begin(pages_bytes(4));
  idle(pages(0, 4));
  idle(pages(10, 14));
  EXPECT_EQ(device.live(), 1u);
  EXPECT_TRUE(domain->has_been_short());
}

TEST_F(PeakGoalTest, NobodyPursuesItUnasked) {
  limit(UINT64_MAX);
  budget->peak_goal().grant(1e6);
  idle(pages(0, 4));
  idle(pages(10, 14));
  EXPECT_EQ(device.peak(), pages_bytes(8));
}

TEST_F(PeakGoalTest, TransfersAtATimeRaiseIt) {
  Region* a = acquire(pages(0, 4));
  Region* b = acquire(pages(10, 14));
  ASSERT_TRUE(a && b);
  domain->release(a);
  domain->release(b);
  idle(pages(20, 24));
  EXPECT_EQ(device.peak(), pages_bytes(8)) << "one of the two went";
}

TEST_F(PeakGoalTest, ALargerRequestRaisesItToItsOwnSize) {
  idle(pages(0, 4));
  idle(pages(10, 16));
  EXPECT_EQ(device.peak(), pages_bytes(6));
  EXPECT_FALSE(hits(pages(0, 4)));
}

TEST_F(PeakGoalTest, IdleRegionsThatShareTheirPagesWithOnesInUseFreeTheRest) {
  // The region in use is refused in one with the idle one, so that they overlap.
  device.refuse = [](Range range, Access) { return range.bytes() > pages_bytes(8) ? ENOMEM : 0; };
  Region* used = acquire(pages(0, 8));
  idle(pages(2, 10));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(10));
  idle(pages(20, 24));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(12)) << "its two pages of its own were not kept";
  EXPECT_FALSE(hits(pages(8, 10)));
  domain->release(used);
}

TEST_F(PeakGoalTest, OnceTheGrantIsSpentRegionsStay) {
  budget->peak_goal().grant(10);
  idle(pages(0, 4));
  idle(pages(10, 14));
  EXPECT_EQ(device.live(), 1u);
  idle(pages(20, 24));
  EXPECT_EQ(device.live(), 2u) << "the first one that went was dearer than the grant";
  budget->peak_goal().grant(1e6);
  idle(pages(30, 34));
  EXPECT_EQ(device.live(), 2u) << "the peak so far is the goal again";
}

TEST_F(PeakGoalTest, ARegistrationAheadWaitsForASwap) {
  expected(pages(0, 4), 1, 5000);
  auto ahead = ticket(pages(10, 14));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::refused);
  EXPECT_FALSE(domain->has_room(pages(10, 14)));
  EXPECT_TRUE(domain->within_limits(pages(10, 14)));
  for (Region* victim : domain->begin_swap(pages(10, 14), 1000, 2000))
    retire_claimed(*domain, victim, Actor::helper);
  EXPECT_TRUE(domain->has_room(pages(10, 14)));
}

TEST_F(PeakGoalTest, LimitsStandBesideIt) {
  begin(pages_bytes(8));
  Region* used = acquire(pages(0, 6));
  auto more = ticket(pages(10, 14));
  EXPECT_EQ(run(more), Step::refused);
  EXPECT_EQ(more.result().error.code, ENOMEM);
  domain->release(used);
  EXPECT_NE(idle(pages(10, 14)), nullptr);
  EXPECT_EQ(device.peak(), pages_bytes(6));
}

}  // namespace
}  // namespace pinion::domain_test
