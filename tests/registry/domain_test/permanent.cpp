// Permanent regions, as the arena registers them.

#include <gtest/gtest.h>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

// ---- permanent regions ----

class PermanentRegion : public RegistryTest {
 protected:
  const int arena_ = 0, other_ = 0;
  RegionRef permanent_;

  /// Pages 10 to 20, as an arena registers them.
  void begin() {
    auto permanent = ticket(pages(10, 20));
    permanent.request().lease = false;
    permanent.request().owner = &arena_;
    ASSERT_EQ(run(permanent), Step::leased);
    ASSERT_EQ(permanent.result().region->range(), pages(10, 20));
    permanent_ = {permanent.result().region, permanent.result().region->generation()};
  }
  void TearDown() override {
    domain->doom(pages(10, 20));
    RegistryTest::TearDown();
  }
};

TEST_F(PermanentRegion, LimitsAndRetentionLeaveItAlone) {
  limit(pages_bytes(16));
  domain->choose_least_recently_used();
  begin();
  idle(pages(30, 36));
  EXPECT_TRUE(domain->idle_regions().size() == 1 && domain->begin_retire(permanent_) == nullptr);
  EXPECT_EQ(acquire(pages(40, 50)), nullptr) << "no room beside it";
  while (Region* region = domain->begin_trim(pages_bytes(2)))
    retire_claimed(*domain, region, Actor::application);
  for (Region* region : domain->begin_shrink(0)) retire_claimed(*domain, region, Actor::helper);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(10)) << "it counts as what is registered";
  Region* served = hit(pages(12, 14), Access::write);
  EXPECT_EQ(served, permanent_.region);
  EXPECT_EQ(domain->release(served), Released::in_use) << "nothing for retention to decide";
}

TEST_F(PermanentRegion, OnlyEventsOfOthersDoomIt) {
  begin();
  EXPECT_EQ(domain->doom(pages(0, 15), &arena_), 0u);
  EXPECT_TRUE(hits(pages(12, 14)));
  idle(pages(2, 4));
  EXPECT_EQ(domain->doom(pages(0, 15), &arena_), pages_bytes(2)) << "its neighbour is nobody's";
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(domain->doom(pages(18, 22), &other_), pages_bytes(10));
  EXPECT_FALSE(hits(pages(12, 14)));
  EXPECT_EQ(reap(), 1u) << "its memory has gone";
  EXPECT_FALSE(permanent_.region->word.load().registered());
}

TEST_F(PermanentRegion, ItIsNeitherMergedNorReplaced) {
  begin();
  // An overlap at its edge becomes a region of its own.
  Region* beside = idle(pages(16, 24));
  EXPECT_EQ(beside->range(), pages(16, 24));
  auto around = ticket(pages(8, 22));
  EXPECT_EQ(run(around), Step::refused);
  EXPECT_EQ(around.result().error.code, EBUSY);
  EXPECT_TRUE(hits(pages(10, 20)));
  // Its owner's second try finds it.
  auto again = ticket(pages(10, 20));
  again.request().owner = &arena_;
  ASSERT_EQ(run(again), Step::leased);
  EXPECT_EQ(again.result().region, permanent_.region);
  domain->release(again.result().region);
  auto foreign = ticket(pages(12, 14));
  foreign.request().owner = &other_;
  EXPECT_EQ(run(foreign), Step::refused);
}

TEST_F(PermanentRegion, ItReplacesOrdinaryOnes) {
  Region* within = acquire(pages(12, 14));
  idle(pages(16, 18));
  begin();
  EXPECT_EQ(domain->region_count(), 2u) << "the one under lease, until its release";
  EXPECT_EQ(domain->release(within), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
}

}  // namespace
}  // namespace pinion::domain_test
