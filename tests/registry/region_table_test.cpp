// The table of regions by itself: what lookups find, and what it counts.
#include "registry/region_table.h"

#include <gtest/gtest.h>

#include <vector>

#include "registry/doomed_regions.h"
#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;

/// A region that is registered, as the steps of an acquire make it.
Region* add(RegionTable& table, Range range, std::uint32_t leases = 0) {
  EXPECT_TRUE(table.reserve());
  Region* const region = table.take(range, leases);
  table.insert(region, 1);
  table.count_registered(range);
  EXPECT_TRUE(region->word.commit());
  return region;
}

/// The region's way out.
void remove(RegionTable& table, Region* region) {
  const Range range = region->range();
  table.hide(region);
  table.count_deregistered(range);
  table.unreserve(range);
  region->word.set_free();
  table.put(region);
}

std::vector<Region*> overlapping(const RegionTable& table, Range range) {
  std::vector<Region*> found;
  table.for_each_overlap(range, [&](Region* region) { found.push_back(region); });
  return found;
}

TEST(RegionTable, LookupsFindARegionFromItsInsertionUntilItIsHidden) {
  RegionTable table;
  ASSERT_TRUE(table.reserve());
  Region* const region = table.take(pages(0, 4), 1);
  EXPECT_EQ(table.find(pages(0, 4).begin), nullptr);
  table.insert(region, 1);
  EXPECT_EQ(table.find(pages(0, 4).begin), region);
  EXPECT_EQ(overlapping(table, pages(3, 10)), std::vector{region});
  EXPECT_EQ(region->word.load().leases(), 1u);
  table.hide(region);
  table.hide(region);
  EXPECT_TRUE(overlapping(table, pages(0, 10)).empty());
  EXPECT_EQ(table.count(), 1u) << "it is reserved as long as it is registered";
}

TEST(RegionTable, CountsTheUnionAndTheSum) {
  RegionTable table;
  Region* const left = add(table, pages(0, 6));
  Region* const right = add(table, pages(4, 10));
  EXPECT_EQ(table.count(), 2u);
  EXPECT_EQ(table.reserved_bytes(), pages_bytes(10));
  EXPECT_EQ(table.registered_bytes(), pages_bytes(10));
  EXPECT_EQ(table.region_bytes(), pages_bytes(12)) << "devices count each region";
  EXPECT_TRUE(left->word.try_retire());
  remove(table, left);
  EXPECT_EQ(table.registered_bytes(), pages_bytes(6));
  EXPECT_EQ(table.region_bytes(), pages_bytes(6));
  EXPECT_TRUE(right->word.try_retire());
  remove(table, right);
  EXPECT_EQ(table.count(), 0u);
  EXPECT_EQ(table.reserved_bytes(), 0u);
  EXPECT_EQ(add(table, pages(20, 21)), right) << "a slot is used again";
}

TEST(RegionTable, TheOrderOfVictimsBeginsAtTheFirstShortage) {
  RegionTable table;
  Region* const first = add(table, pages(0, 1));
  EXPECT_FALSE(table.pressed());
  EXPECT_EQ(table.victims().take(2), nullptr);
  table.feel_pressure();
  EXPECT_TRUE(table.pressed());
  Region* const second = add(table, pages(2, 3));
  first->last_use = 5;
  second->last_use = 1;
  EXPECT_EQ(table.victims().take(10), second);
  table.hide(first);
  EXPECT_EQ(table.victims().take(10), nullptr);
}

TEST(RegionTable, HintsOfAllThreadsLeadToManyRegions) {
  RegionTable table;
  std::vector<Region*> regions;
  for (std::size_t i = 0; i < 2000; ++i) regions.push_back(add(table, pages(3 * i, 3 * i + 2)));
  for (const Region* region : regions) EXPECT_EQ(table.find_hint(region->range().begin), nullptr);
  std::size_t found = 0;
  for (Region* region : regions) {
    table.remember(region->range().begin, region);
    found += table.find_hint(region->range().begin) == region;
  }
  EXPECT_EQ(found, regions.size());
}

TEST(RegionTable, ManyRegionsCostLittleMemoryEach) {
  constexpr std::size_t kRegions = 1 << 16;
  RegionTable table;
  for (std::size_t i = 0; i < kRegions; ++i) add(table, pages(3 * i, 3 * i + 2));
  EXPECT_LE(table.own_bytes(), 260 * kRegions);
}

TEST(DoomedRegions, EachUnusedOneComesOnce) {
  RegionTable table;
  DoomedRegions doomed;
  Region* const unused = add(table, pages(0, 1));
  Region* const used = add(table, pages(2, 3), 1);
  EXPECT_FALSE(doomed.waiting());
  for (Region* region : {unused, used}) region->word.doom();
  for (int twice = 0; twice < 2; ++twice)
    for (Region* region : {unused, used}) doomed.add(region);
  EXPECT_TRUE(doomed.waiting());
  EXPECT_EQ(doomed.next(), unused);
  EXPECT_EQ(unused->word.load().state(), RegionState::retiring);
  EXPECT_EQ(doomed.next(), nullptr);
  EXPECT_FALSE(doomed.waiting());
}

}  // namespace
}  // namespace pinion
