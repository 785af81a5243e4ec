// Questions of retention, regions that peers hold, and counts that are used up.

#include <gtest/gtest.h>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

// ---- retention's helpers ----

TEST_F(RegistryTest, IdleRegionsAreListedInOrder) {
  idle(pages(20, 22));
  idle(pages(0, 2));
  Region* leased = acquire(pages(10, 12));
  const auto refs = domain->idle_regions();
  ASSERT_EQ(refs.size(), 2u);
  EXPECT_EQ(refs[0].region->range(), pages(0, 2));
  EXPECT_EQ(refs[1].region->range(), pages(20, 22));
  EXPECT_EQ(domain->idle_regions(pages(21, 23)).size(), 1u);
  EXPECT_TRUE(domain->missing(pages(10, 12)) == 0);
  EXPECT_FALSE(domain->missing(pages(10, 13)) == 0);
  domain->release(leased);
}

TEST_F(RegistryTest, ReferencesDoNotSurviveRecycling) {
  Region* region = idle(pages(0, 4));
  const RegionRef ref{region, region->generation()};
  Region* claimed = domain->begin_retire(ref);
  ASSERT_EQ(claimed, region);
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_EQ(domain->begin_retire(ref), nullptr);
  retire_claimed(*domain, claimed, Actor::helper);
  EXPECT_EQ(idle(pages(50, 54)), region);  // the same slot
  EXPECT_FALSE(ref.current());
  EXPECT_EQ(domain->begin_retire(ref), nullptr);
  EXPECT_TRUE(hits(pages(50, 54)));
  EXPECT_FALSE(hits(pages(0, 4)));  // although the thread remembers the slot for it
}

TEST_F(RegistryTest, LeasedRegionsAreNotRetired) {
  Region* region = acquire(pages(0, 4));
  EXPECT_EQ(domain->begin_retire({region, region->generation()}), nullptr);
  retire_all(*domain, Actor::helper, [](auto&&...) {});
  EXPECT_EQ(device.live(), 1u);
  domain->release(region);
}

// ---- regions held by peers ----

TEST_F(RegistryTest, HeldRegionsAreNoVictimsAndAreNotRetired) {
  limit(pages_bytes(8));
  Region* held = idle(pages(0, 4));
  const RegionRef ref{held, held->generation()};
  ASSERT_TRUE(domain->begin_hold(ref));
  idle(pages(10, 14));
  EXPECT_EQ(domain->idle_regions().size(), 1u);
  EXPECT_EQ(domain->begin_retire(ref), nullptr);
  // The other one goes for each of these; where that is too little, both stay.
  idle(pages(20, 24));
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(10, 14)));
  EXPECT_EQ(acquire(pages(30, 38)), nullptr);
  EXPECT_TRUE(hits(pages(20, 24)));
  for (Region* region : domain->begin_shrink(0)) retire_claimed(*domain, region, Actor::helper);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(4));
  EXPECT_TRUE(hits(pages(0, 4)));

  EXPECT_EQ(domain->end_hold(held), Released::idle);
  EXPECT_EQ(domain->idle_regions().size(), 1u);
}

TEST_F(RegistryTest, ADoomedRegionStaysForItsHolders) {
  Region* region = acquire(pages(0, 4));
  const RegionRef ref{region, region->generation()};
  ASSERT_TRUE(domain->begin_hold(ref));
  ASSERT_TRUE(domain->begin_hold(ref));
  idle(pages(10, 14));
  change(pages(0, 20));

  EXPECT_FALSE(domain->begin_hold(ref));
  EXPECT_FALSE(hits(pages(0, 4)));

  EXPECT_EQ(domain->end_hold(region), Released::in_use);
  EXPECT_EQ(domain->release(region), Released::in_use);
  EXPECT_EQ(reap(), 1u) << "the idle one";
  EXPECT_TRUE(device.serves(region->key, pages(0, 4), Access::all));
  EXPECT_EQ(domain->end_hold(region), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
  EXPECT_FALSE(domain->begin_hold(ref));
}

TEST_F(RegistryTest, AReplacedRegionStaysForItsHolders) {
  Region* small = idle(pages(2, 4));
  ASSERT_TRUE(domain->begin_hold({small, small->generation()}));
  idle(pages(0, 8));
  EXPECT_EQ(reap(), 0u);
  EXPECT_EQ(domain->end_hold(small), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
}

TEST_F(RegistryTest, ARequestBeyondTheMostLeasesRegistersAnew) {
  Region* full = acquire(pages(0, 4));
  std::uint32_t leases = 1;
  for (const auto proof = full->word.load().proof(); full->word.count_in(proof);) ++leases;
  EXPECT_EQ(leases, RegionWord::kMostLeases);
  EXPECT_EQ(full->word.release(), Released::in_use) << "the one that was refused";
  Region* next = acquire(pages(0, 4));
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next, full);
  EXPECT_EQ(domain->release(next), Released::idle);
  for (; leases > 1; --leases) full->word.release();
  EXPECT_EQ(domain->release(full), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
}

TEST_F(RegistryTest, ASlotWhoseGenerationsAreUsedUpIsNotUsedAgain) {
  Region* region = idle(pages(0, 1));
  const auto retire = [&] {
    retire_claimed(*domain, domain->begin_retire({region, region->generation()}), Actor::helper);
  };
  retire();
  while (region->generation() + 1 < RegionWord::kLastGeneration) {
    region->word.begin_registering(0);
    region->word.abandon(0);
    region->word.set_free();
  }
  EXPECT_EQ(idle(pages(0, 1)), region);
  EXPECT_EQ(region->generation(), RegionWord::kLastGeneration);
  retire();
  EXPECT_NE(idle(pages(0, 1)), region);
}

TEST_F(RegistryTest, DomainsShareTheBudget) {
  limit(pages_bytes(8));
  test::FakeDevice other_device;
  Domain other(other_device, *budget, brackets, clock, nullptr);
  Region* mine = acquire(pages(0, 6));
  Acquisition theirs(other, {.pages = pages(0, 6)});
  EXPECT_EQ(run(theirs), Step::refused);
  domain->release(mine);
  Acquisition small(other, {.pages = pages(0, 2)});
  EXPECT_EQ(run(small), Step::leased);
  EXPECT_EQ(budget->bytes(), pages_bytes(8));
  other.release(small.result().region);
  retire_all(other, Actor::helper, [](auto&&...) {});
  EXPECT_EQ(budget->bytes(), pages_bytes(6));
}

}  // namespace
}  // namespace pinion::domain_test
