// The hints that all threads of a domain share: what they find, how much they hold, readers beside a table
// that grows, and what becomes of hints whose region has gone.
#include "registry/shared_hints.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "support/deterministic_scheduler.h"
#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

struct alignas(64) Item {};
using Hints = BasicSharedHints<Item>;

TEST(SharedHints, AreThereForManyRegionsOnly) {
  Hints hints;
  Item item;
  hints.fit(1000);
  hints.remember(4096, &item);
  EXPECT_EQ(hints.find(4096), nullptr);
  EXPECT_EQ(hints.bytes(), 0u) << "a few regions cost nothing";
  hints.fit(2000);
  hints.remember(4096, &item);
  EXPECT_EQ(hints.find(4096), &item);
  EXPECT_EQ(hints.find(8192), nullptr);
}

TEST(SharedHints, TheLatestRegionOfAnAddressIsFound) {
  Hints hints;
  hints.fit(2000);
  std::vector<Item> items(3);
  for (Item& item : items) {
    hints.remember(4096 + 16, &item);
    EXPECT_EQ(hints.find(4096 + 16), &item);
  }
}

/// The share of addresses that are found again after all of them were remembered.
template <class AddressOf>
double found(std::size_t regions, AddressOf&& address_of) {
  Hints hints;
  std::vector<Item> items(regions);
  hints.fit(regions);
  for (std::size_t i = 0; i < regions; ++i) hints.remember(address_of(i), &items[i]);
  std::size_t n = 0;
  for (std::size_t i = 0; i < regions; ++i) n += hints.find(address_of(i)) == &items[i];
  return static_cast<double>(n) / static_cast<double>(regions);
}

TEST(SharedHints, NearlyAllAreFoundWhereverTheyLie) {
  constexpr Address kBase = Address{0x7f} << 40;
  std::mt19937_64 random(1);
  for (const std::size_t regions : {2'000, 49'000, 65'536, 98'000}) {
    for (const Address step :
         {std::size_t{64}, std::size_t{4096}, std::size_t{4096} * 17, std::size_t{128} << 10,
          std::size_t{1} << 20, std::size_t{3} << 20, std::size_t{1} << 30})
      EXPECT_GT(found(regions, [&](std::size_t i) { return kBase + i * step; }), .9)
          << regions << " at distances of " << step;
    std::vector<Address> anywhere(regions);
    for (Address& address : anywhere) address = random() >> 17 << 4;
    EXPECT_GT(found(regions, [&](std::size_t i) { return anywhere[i]; }), .9) << regions;
  }
}

TEST(SharedHints, TheTableGrowsWithTheRegionsAndCostsLittle) {
  Hints hints;
  for (std::size_t regions = 1; regions <= 200'000; ++regions) {
    hints.fit(regions);
    ASSERT_LE(hints.bytes(), regions < 1024 ? 0 : 22 * regions);
  }
  Item item;
  hints.remember(4096, &item);
  hints.fit(100'000);
  EXPECT_EQ(hints.find(4096), &item) << "it never shrinks";
}

TEST(SharedHints, ReadersBesideAGrowingTableSeeWhatWasRememberedOrNothing) {
  using Scheduled = BasicSharedHints<Item, ScheduledAtomics, 1>;
  std::vector<Item> items(2);
  std::deque<Scheduled> tables;
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 4'000, .random = 500}, [&] {
    tables.clear();
    Scheduled& hints = tables.emplace_back();
    hints.fit(12);
    hints.remember(4096, &items[0]);
    const auto looks = [&](Item* mine) {
      return [&, mine] {
        const Item* seen = hints.find(4096);
        EXPECT_TRUE(!seen || seen == &items[0] || seen == &items[1]);
        hints.remember(4096, mine);
        seen = hints.find(4096);
        EXPECT_TRUE(!seen || seen == &items[0] || seen == &items[1]);
        EXPECT_EQ(hints.find(8192), nullptr);
      };
    };
    return test::Scenario{{[&] { hints.fit(100); }, looks(&items[0]), looks(&items[1])}};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

// ---- in a domain ----

using test::pages;

class ManyRegions : public test::RegistryTest {
 protected:
  static constexpr std::size_t kRegions = 5000;
  static Range range(std::size_t i) { return pages(3 * i, 3 * i + 2); }

  ManyRegions() {
    for (std::size_t i = 0; i < kRegions; ++i) idle(range(i));
    hit_all();
  }
  /// A thread without hints of its own.
  Region* hit_anew(Range request) {
    recent = {};
    Region* const region = hit(request);
    if (region) domain->release(region);
    return region;
  }
  void hit_all() {
    for (std::size_t i = 0; i < kRegions; ++i) EXPECT_TRUE(hits(range(i))) << i;
  }
};

TEST_F(ManyRegions, HitsFindTheRegionOfTheRequest) {
  for (std::size_t i = 0; i < kRegions; ++i) {
    const Region* const region = hit_anew(range(i));
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(region->range(), range(i));
  }
  EXPECT_EQ(hit_anew(pages(2, 3)), nullptr);
  EXPECT_EQ(hit_anew(pages(0, 3)), nullptr) << "its begin is known, and the region is too small";
}

TEST_F(ManyRegions, AHintWhoseRegionHasGoneServesNothing) {
  for (std::size_t i = 0; i < kRegions; i += 2) change(range(i));
  for (std::size_t i = 0; i < kRegions; ++i) EXPECT_EQ(hit_anew(range(i)) != nullptr, i % 2 == 1) << i;
  EXPECT_EQ(reap(), kRegions / 2);
  // Their slots serve other memory.
  for (std::size_t i = 0; i < kRegions / 2; ++i) idle(range(kRegions + i));
  for (std::size_t i = 0; i < kRegions; ++i) EXPECT_EQ(hit_anew(range(i)) != nullptr, i % 2 == 1) << i;
  for (std::size_t i = 0; i < kRegions; i += 2) {
    const Region* const again = idle(range(i));
    EXPECT_EQ(hit_anew(range(i)), again);
    EXPECT_EQ(hit_anew(range(i)), again);
  }
}

TEST_F(ManyRegions, ALargerRegionThatReplacesOneIsFound) {
  const Range larger = pages(30, 36);
  Region* const region = idle(larger);
  ASSERT_NE(region, nullptr);
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_EQ(hit_anew(range(10)), region);
    EXPECT_EQ(hit_anew(larger), region);
    EXPECT_EQ(hit_anew(pages(35, 36)), region);
  }
}

}  // namespace
}  // namespace pinion
