// The index of regions: against a plain map on one thread, and under chosen interleavings of one writer with
// lock-free readers. Blocks are small there, so that a few regions split and empty them.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "registry/region_index.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

template <class Atomics>
struct Item {
  typename Atomics::template Atomic<Address> begin{0};
  typename Atomics::template Atomic<Address> end{0};
};

// ---- against a map ----

class IndexAgainstMap : public ::testing::TestWithParam<std::size_t> {};

TEST_P(IndexAgainstMap, FindsAndVisitsTheSame) {
  using Plain = Item<StdAtomics>;
  const std::size_t most = GetParam();
  BasicRegionIndex<Plain> index;
  std::map<Address, Plain*> model;
  std::deque<Plain> items;
  std::vector<Plain*> unused;
  std::mt19937_64 random(most);
  const Address space = 16 * most;
  for (std::size_t step = 0; step < 20 * most; ++step) {
    const bool grow = step / (4 * most) % 2 == 0;
    const Address begin = random() % space + 1;
    if (random() % 4 != 0 ? grow : !grow) {
      // Ends in the order of begins, overlaps included: begin + a fixed length.
      if (model.count(begin) || model.size() == most) continue;
      if (unused.empty()) unused.push_back(&items.emplace_back());
      Plain* item = unused.back();
      unused.pop_back();
      item->begin.store(begin);
      item->end.store(begin + 24);
      ASSERT_TRUE(index.reserve());
      index.insert(item);
      model.emplace(begin, item);
    } else {
      const auto found = model.lower_bound(begin);
      if (found == model.end()) continue;
      index.erase(found->second);
      unused.push_back(found->second);
      model.erase(found);
    }
    ASSERT_EQ(index.size(), model.size());
    const Address a = random() % (space + 32);
    const auto above = model.upper_bound(a);
    ASSERT_EQ(index.find(a), above == model.begin() ? nullptr : std::prev(above)->second);
    if (step % 8 == 0) {
      const Range range{a, a + 1 + random() % 200};
      std::map<Address, Plain*> seen;
      index.for_each_overlap(range, [&](Plain* item) { seen.emplace(item->begin.load(), item); });
      std::map<Address, Plain*> expected;
      for (const auto& [key, item] : model)
        if (range.overlaps({key, item->end.load()})) expected.emplace(key, item);
      ASSERT_EQ(seen, expected);
    }
  }
  std::vector<Plain*> all;
  index.for_each([&](Plain* item) { return all.push_back(item), true; });
  ASSERT_EQ(all.size(), model.size());
  std::size_t i = 0;
  for (const auto& [key, item] : model) EXPECT_EQ(all[i++], item);
}

INSTANTIATE_TEST_SUITE_P(Sizes, IndexAgainstMap, ::testing::Values(3, 40, 1500));

TEST(RegionIndex, GrowsItsDirectoryUpwardsAndDownwards) {
  for (const bool upwards : {true, false}) {
    constexpr std::size_t kItems = 40'000;
    std::vector<Item<StdAtomics>> items(kItems);
    BasicRegionIndex<Item<StdAtomics>> index;
    for (std::size_t i = 0; i < kItems; ++i) {
      const Address begin = 10 * (upwards ? i + 1 : kItems - i);
      items[i].begin.store(begin);
      items[i].end.store(begin + 10);
      ASSERT_TRUE(index.reserve());
      index.insert(&items[i]);
    }
    for (std::size_t i = 0; i < kItems; ++i) ASSERT_EQ(index.find(items[i].begin.load() + 9), &items[i]);
    EXPECT_EQ(index.find(9), nullptr);
    for (auto& item : items) index.erase(&item);
    EXPECT_EQ(index.size(), 0u);
    EXPECT_EQ(index.find(100), nullptr);
  }
}

// ---- a writer and readers ----

using Scheduled = Item<ScheduledAtomics>;
using SmallIndex = BasicRegionIndex<Scheduled, ScheduledAtomics, 4>;

constexpr Address kStep = 100;

class IndexSchedule : public ::testing::Test {
 protected:
  // One index for all schedules, since it never gives memory back; emptied after each.
  SmallIndex index;
  std::deque<Scheduled> items;

  void insert(std::size_t at) {
    Scheduled* item = &items.emplace_back();
    EXPECT_TRUE(index.reserve());
    put(item, at);
  }
  /// Memory for it is there already: only the first schedule would have to ask for it.
  void put(Scheduled* item, std::size_t at) {
    item->begin.store(kStep * at);
    item->end.store(kStep * at + kStep);
    index.insert(item);
  }
  void clear() {
    std::vector<Scheduled*> all;
    index.for_each([&](Scheduled* item) { return all.push_back(item), true; });
    for (Scheduled* item : all) index.erase(item);
    EXPECT_EQ(index.size(), 0u);
    items.clear();
  }
  /// Regions 0, 2, 4 … 2n-2, which stay during the schedule unless a writer takes them.
  void fill(std::size_t n) {
    items.clear();
    for (std::size_t i = 0; i < n; ++i) insert(2 * i);
    EXPECT_TRUE(index.reserve());
  }
  /// A hook that must see the regions at `present` (even positions).
  auto expects_overlap(Range range, std::vector<std::size_t> present) {
    return [this, range, present] {
      std::vector<bool> seen(items.size());
      index.for_each_overlap(range, [&](Scheduled* item) {
        for (std::size_t i = 0; i < items.size(); ++i)
          if (item == &items[i]) seen[i] = true;
      });
      for (const std::size_t i : present) EXPECT_TRUE(seen[i / 2]) << "region " << i << " missed";
    };
  }
  /// A lookup whose answer, right or not, is a region that is or was there.
  auto looks_up(Address a) {
    return [this, a] {
      const Scheduled* found = index.find(a);
      if (!found) return;
      bool known = false;
      for (const auto& item : items) known |= found == &item;
      EXPECT_TRUE(known);
    };
  }
  Scheduler::Explored explore(const std::function<test::Scenario()>& make) {
    return Scheduler::explore({.preemptions = 2, .exhaustive = 4'000, .random = 500}, make);
  }
};

TEST_F(IndexSchedule, NothingIsMissedWhileABlockSplits) {
  const auto explored = explore([this] {
    fill(4);
    Scheduled* item = &items.emplace_back();
    return test::Scenario{{[this, item] { put(item, 3); }, expects_overlap({0, 7 * kStep}, {0, 2, 4, 6}),
                           looks_up(2 * kStep + 1)},
                          [this] { clear(); }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

TEST_F(IndexSchedule, NothingIsMissedWhileEntriesMove) {
  const auto explored = explore([this] {
    fill(7);  // two blocks
    return test::Scenario{{[this] {
                             index.erase(&items[1]);
                             index.erase(&items[4]);
                           },
                           expects_overlap({4 * kStep, 7 * kStep}, {4, 6}),
                           expects_overlap({0, 13 * kStep}, {0, 4, 6, 10, 12})},
                          [this] { clear(); }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

TEST_F(IndexSchedule, NothingIsMissedWhileABlockEmptiesAndIsUsedAgain) {
  const auto explored = explore([this] {
    fill(5);  // the last one in a block of its own
    Scheduled* item = &items.emplace_back();
    return test::Scenario{{[this, item] {
                             index.erase(&items[4]);
                             put(item, 1);  // splits into the block that was emptied
                           },
                           expects_overlap({0, 9 * kStep}, {0, 2, 4, 6}), looks_up(8 * kStep)},
                          [this] { clear(); }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

TEST_F(IndexSchedule, RecycledRegionIsNotTakenForItsPredecessor) {
  const auto explored = explore([this] {
    fill(3);
    return test::Scenario{{[this] {
                             // The slot of region 2 becomes a region behind the others.
                             index.erase(&items[1]);
                             put(&items[1], 20);
                           },
                           expects_overlap({0, 5 * kStep}, {0, 4}), looks_up(2 * kStep)},
                          [this] { clear(); }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

}  // namespace
}  // namespace pinion
