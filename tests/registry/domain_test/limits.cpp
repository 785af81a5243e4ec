// Limits of devices and of the process, and who makes room.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

// ---- limits ----

TEST_F(RegistryTest, CapsOfTheDeviceBoundItsDomain) {
  device.limits.max_bytes = pages_bytes(10);
  device.limits.max_regions = 3;
  limit(UINT64_MAX);
  expected(pages(0, 4), 1, 1000);
  expected(pages(10, 14), 2, 3000);
  expected(pages(20, 22), 3, 2000);
  idle(pages(30, 31), 4);  // a fourth region
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(10, 14))) << "the victim is the one used farthest in the future";
  EXPECT_TRUE(hits(pages(20, 22)));
  EXPECT_LE(device.live(), 3u);

  // All in use: refused before the device is asked, with its name and caps.
  std::vector<Region*> out;
  for (std::size_t at : {0, 20, 30}) out.push_back(acquire(pages(at, at + 1)));
  const std::size_t calls = device.calls();
  auto more = ticket(pages(40, 41));
  EXPECT_EQ(run(more), Step::refused);
  EXPECT_EQ(more.result().error.code, ENOMEM);
  EXPECT_FALSE(more.result().over_limit);
  EXPECT_NE(std::string(more.result().error.message).find("device fake registers at most"), std::string::npos)
      << more.result().error.message;
  EXPECT_EQ(device.calls(), calls);
  for (Region* region : out) domain->release(region);
  auto too_large = ticket(pages(100, 111));
  EXPECT_EQ(run(too_large), Step::refused);
  EXPECT_TRUE(hits(pages(0, 4))) << "for which nothing is let go";
}

/// Two domains that share a budget.
class TwoDomains : public RegistryTest {
 protected:
  void open(std::uint64_t bytes, std::uint64_t regions = UINT64_MAX) {
    limit(bytes, regions);
    other_ = std::make_unique<Domain>(other_device, *budget, brackets, clock, nullptr);
  }
  void TearDown() override {
    retire_all(*other_, Actor::helper, [](auto&&...) {});
    EXPECT_EQ(other_device.live(), 0u);
    RegistryTest::TearDown();
  }
  Acquisition ticket_of_other(Range range) { return {*other_, {.pages = range}}; }
  void idle_in_other(Range range) {
    auto miss = ticket_of_other(range);
    ASSERT_EQ(run(miss), Step::leased);
    other_->release(miss.result().region);
  }

  test::FakeDevice other_device;
  std::unique_ptr<Domain> other_;
};

TEST_F(TwoDomains, CapsOfOneDeviceDoNotBoundAnother) {
  device.limits.max_regions = 2;
  device.limits.max_bytes = pages_bytes(4);
  other_device.limits.max_regions = 6;
  open(UINT64_MAX);
  for (std::size_t i = 0; i < 10; ++i) {
    idle(pages(10 * i, 10 * i + 1));
    idle_in_other(pages(10 * i, 10 * i + 8));
    EXPECT_EQ(device.live(), std::min<std::size_t>(i + 1, 2));
    EXPECT_EQ(other_device.live(), std::min<std::size_t>(i + 1, 6));
  }
  EXPECT_EQ(budget->regions(), 8u);
  EXPECT_EQ(budget->bytes(), pages_bytes(2 + 6 * 8));
}

TEST_F(TwoDomains, ALimitOfTheProcessIsOfTheirSum) {
  open(pages_bytes(12), 3);
  idle(pages(0, 8));
  idle_in_other(pages(0, 4));
  // More fits in neither: each can evict only its own regions, and the other's count.
  auto large = ticket_of_other(pages(100, 109));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_TRUE(large.result().over_limit);
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_EQ(other_device.live(), 1u);

  // Another domain makes room when it is asked.
  const auto retire = [&](std::vector<Region*> victims) {
    for (Region* region : victims) retire_claimed(*domain, region, Actor::helper);
  };
  retire(domain->begin_shrink(pages_bytes(12) - large.request().pages.bytes()));
  EXPECT_FALSE(hits(pages(0, 8)));
  EXPECT_EQ(run(large), Step::leased);
  other_->release(large.result().region);
  EXPECT_LE(budget->bytes(), pages_bytes(12));

  // It makes room by number, too.
  for (std::size_t at : {0, 1}) idle(pages(200 + 2 * at, 201 + 2 * at));
  EXPECT_EQ(budget->regions(), 3u);
  retire(domain->begin_shrink(UINT64_MAX, 1));
  EXPECT_EQ(budget->regions(), 1u) << "as far as the domain has idle ones";
}

TEST_F(RegistryTest, VictimIsTheOneUsedFarthestInTheFuture) {
  limit(pages_bytes(12));
  expected(pages(0, 4), 1, 1000);
  expected(pages(10, 14), 2, 3000);
  expected(pages(20, 24), 3, 2000);
  idle(pages(30, 34), 4);
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(10, 14)));
  EXPECT_TRUE(hits(pages(20, 24)));
}

TEST_F(RegistryTest, UnpredictedRegionsGoFirstAndInOrderOfUse) {
  limit(pages_bytes(12));
  idle(pages(0, 4), 30);
  idle(pages(10, 14), 20);
  expected(pages(20, 24), 10, 1'000'000);
  idle(pages(30, 34), 40);
  EXPECT_FALSE(hits(pages(10, 14)));
  EXPECT_TRUE(hits(pages(0, 4)));
  idle(pages(40, 48), 50);
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(30, 34)));
  EXPECT_TRUE(hits(pages(20, 24)));
  EXPECT_LE(device.peak(), pages_bytes(12));
}

TEST_F(RegistryTest, RequestAboveTheLimitIsRefusedAndEvictsNothing) {
  limit(pages_bytes(10));
  idle(pages(0, 4));
  auto large = ticket(pages(100, 111));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_EQ(large.result().error.code, ENOMEM);
  EXPECT_NE(std::string(large.result().error.message).find(std::to_string(pages_bytes(10) / 1024) + " KiB"),
            std::string::npos);
  EXPECT_NE(std::string(large.result().error.message).find("--limit"), std::string::npos);
  EXPECT_TRUE(hits(pages(0, 4)));
}

// The bytes of overlapping regions are not freed twice.
TEST_F(RegistryTest, HopelessRequestEvictsNothingBesideOverlappingRegions) {
  limit(pages_bytes(20));
  device.refuse = [](Range range, Access) { return range.bytes() > pages_bytes(8) ? ENOMEM : 0; };
  idle(pages(0, 8));
  idle(pages(2, 10));
  idle(pages(0, 8));
  EXPECT_EQ(device.live(), 2u);
  Region* leased = acquire(pages(50, 55));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(15));
  auto large = ticket(pages(100, 118));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_TRUE(hits(pages(2, 10)));
  domain->release(leased);
}

TEST_F(RegistryTest, LeasedRegionsAreNeverVictims) {
  limit(pages_bytes(8));
  Region* leased = acquire(pages(0, 6));
  auto more = ticket(pages(10, 14));
  EXPECT_EQ(run(more), Step::refused);
  EXPECT_TRUE(device.serves(leased->key, pages(0, 6), Access::all));
  domain->release(leased);
  EXPECT_NE(idle(pages(10, 14)), nullptr);
  EXPECT_FALSE(hits(pages(0, 6)));
}

TEST_F(RegistryTest, MergeThatDoesNotFitYieldsToTheRequestAlone) {
  limit(pages_bytes(10));
  Region* leased = acquire(pages(0, 8));
  Region* alone = idle(pages(6, 10));
  ASSERT_NE(alone, nullptr);
  domain->release(leased);
  auto other = acquire(pages(5, 11));
  ASSERT_NE(other, nullptr);
  EXPECT_LE(device.peak(), pages_bytes(10));
  domain->release(other);
}

TEST_F(RegistryTest, RegionCountIsLimitedToo) {
  limit(UINT64_MAX, 2);
  idle(pages(0, 1), 1);
  idle(pages(10, 11), 2);
  idle(pages(20, 21), 3);
  EXPECT_EQ(device.live(), 2u);
  EXPECT_FALSE(hits(pages(0, 1)));
  Region* a = acquire(pages(10, 11));
  Region* b = acquire(pages(20, 21));
  auto third = ticket(pages(30, 31));
  EXPECT_EQ(run(third), Step::refused);
  domain->release(a);
  domain->release(b);
}

TEST_F(RegistryTest, HelperEvictsNothing) {
  limit(pages_bytes(4));
  idle(pages(0, 4));
  auto ahead = ticket(pages(10, 14));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::refused);
  EXPECT_TRUE(hits(pages(0, 4)));
}

TEST_F(RegistryTest, HelperRegistersAheadWithoutALease) {
  auto ahead = ticket(pages(0, 4));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::leased);
  EXPECT_TRUE(ahead.result().registered_here);
  EXPECT_EQ(ahead.result().region->word.load().leases(), 0u);
  EXPECT_TRUE(hits(pages(0, 4)));
  auto again = ticket(pages(1, 2));
  again.request().lease = false;
  EXPECT_EQ(run(again), Step::leased);
  EXPECT_FALSE(again.result().registered_here);
  EXPECT_EQ(device.calls(), 1u);
}

TEST_F(RegistryTest, TrimKeepsTheMostRecentlyUsed) {
  for (std::size_t i = 0; i < 8; ++i) idle(pages(10 * i, 10 * i + 2), 100 - i);
  domain->choose_least_recently_used();
  // All five are claimed before the first is gone: departing bytes are not claimed twice.
  std::vector<Region*> victims;
  while (Region* region = domain->begin_trim(pages_bytes(6))) victims.push_back(region);
  EXPECT_EQ(victims.size(), 5u);
  for (Region* region : victims) retire_claimed(*domain, region, Actor::helper);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(hits(pages(10 * i, 10 * i + 2)), i < 3);
  EXPECT_EQ(domain->begin_trim(pages_bytes(6)), nullptr);
}

// The next registration may count from before a later look at the clock.
TEST_F(RegistryTest, ARetirementEndsWhileItsBytesStillCount) {
  class Watching final : public Clock {
   public:
    explicit Watching(const Budget& budget) : budget_(budget) {}
    Time now() override { return static_cast<Time>(budget_.bytes()); }
    Ticks ticks() override { return budget_.bytes(); }

   private:
    const Budget& budget_;
  } watching(*budget);
  Domain watched(device, *budget, brackets, watching, nullptr);
  Acquisition wanted(watched, {.pages = pages(1, 3)});
  DeviceCall made;
  const auto note = [&](const DeviceCall& call) { made = call; };
  ASSERT_EQ(run_blocking(wanted, Actor::application, note), Step::leased);
  EXPECT_EQ(made.begin, pages_bytes(2));
  watched.release(wanted.result().region);
  retire_all(watched, Actor::helper, note);
  EXPECT_EQ(made.end, pages_bytes(2));
  EXPECT_EQ(budget->bytes(), 0u);
}

}  // namespace
}  // namespace pinion::domain_test
