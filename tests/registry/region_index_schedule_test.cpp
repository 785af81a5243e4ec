// The index of regions: against a plain map on one thread, interrupted by a hook at every access, and under
// chosen interleavings of one writer with lock-free readers. Blocks are small there, so that a few regions
// split and empty them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
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

// ---- a hook that interrupts a writer on its own thread ----

/// Runs `handler` before one access of the thread's: as a signal does, to its end.
struct Interruption {
  std::uint64_t accesses_before = 0;
  std::function<void()> handler;

  static inline thread_local Interruption* due = nullptr;
  static void point() {
    if (!due || due->accesses_before-- > 0) return;
    Interruption* const now = due;
    due = nullptr;
    now->handler();
  }
};

struct InterruptedAtomics {
  template <class T>
  class Atomic : public std::atomic<T> {
   public:
    using std::atomic<T>::atomic;
    T load(std::memory_order order = std::memory_order_seq_cst) const {
      Interruption::point();
      return std::atomic<T>::load(order);
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
      Interruption::point();
      std::atomic<T>::store(value, order);
    }
    T fetch_add(T value, std::memory_order order = std::memory_order_seq_cst) {
      Interruption::point();
      return std::atomic<T>::fetch_add(value, order);
    }
  };
  static void relax() { FAIL() << "the hook waits for the writer that it has interrupted"; }
};

TEST(RegionIndex, HookInterruptsAWriterAnywhere) {
  using Interrupted = Item<InterruptedAtomics>;
  using Index = BasicRegionIndex<Interrupted, InterruptedAtomics, 4>;
  Index index;  // one for all, since it never gives memory back
  std::mt19937_64 random(1);
  // Inserting and erasing at every place of an index of a few blocks, with a hook at every access.
  for (std::size_t regions = 1; regions <= 13; ++regions) {
    for (std::size_t changed = 0; changed < regions; ++changed) {
      for (const bool inserting : {true, false}) {
        bool interrupted = true;
        for (std::uint64_t access = 0; interrupted; ++access) {
          std::deque<Interrupted> items(regions);
          std::vector<std::size_t> order(regions);
          for (std::size_t i = 0; i < regions; ++i) {
            order[i] = i;
            items[i].begin.store(100 * i);
            items[i].end.store(100 * i + 150);  // overlaps its neighbour
          }
          std::shuffle(order.begin(), order.end(), random);
          for (const std::size_t i : order) {
            ASSERT_TRUE(index.reserve());
            if (!inserting || i != changed) index.insert(&items[i]);
          }
          const std::size_t first = random() % regions, last = first + random() % (regions - first);
          const Range range{100 * first + 60, 100 * last + 61};
          Interruption interruption{
              access, [&] {
                std::vector<bool> seen(regions);
                index.for_each_overlap(range, [&](Interrupted* item) {
                  seen[static_cast<std::size_t>(item - &items[0])] = true;
                });
                for (std::size_t i = 0; i < regions; ++i) {
                  const bool expected = range.overlaps({items[i].begin.load(), items[i].end.load()});
                  if (i == changed && expected) continue;
                  EXPECT_EQ(seen[i], expected)
                      << regions << " regions, " << (inserting ? "insert " : "erase ") << changed
                      << " at access " << access << ": region " << i;
                }
              }};
          Interruption::due = &interruption;
          if (inserting) {
            index.insert(&items[changed]);
          } else {
            index.erase(&items[changed]);
          }
          interrupted = Interruption::due == nullptr;
          Interruption::due = nullptr;
          ASSERT_FALSE(HasFailure());
          for (auto& item : items) index.erase(&item);
        }
      }
    }
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
  Scheduler::Explored explore(const std::function<test::Scenario()>& make, unsigned preemptions = 2,
                              std::uint64_t exhaustive = 4'000) {
    return Scheduler::explore({.preemptions = preemptions, .exhaustive = exhaustive, .random = 500}, make);
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

TEST_F(IndexSchedule, NothingIsMissedWhereMuchMovesUnderAReader) {
  struct Case {
    const char* what;
    std::size_t regions;
    std::vector<std::size_t> erased_before;
    std::size_t erased, put_at;  ///< one of the two; an odd position is put
    Range range;                 ///< in positions
    std::vector<std::size_t> present;
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double kExhaustive = 5'000;  // the orders are the same there
#else
  constexpr double kExhaustive = 50'000;
#endif
  const Case cases[] = {
      {"entries move down, seen upwards", 7, {}, 4, 0, {0, 13}, {0, 2, 4, 6, 10, 12}},
      {"entries move up, seen downwards", 4, {0}, 0, 1, {2, 8}, {2, 4, 6}},
      {"a block splits before others", 13, {}, 0, 11, {0, 26}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 24}},
      {"blocks move up behind the first", 13, {}, 0, 3, {18, 26}, {18, 20, 22, 24}},
      {"blocks move down", 13, {4, 5, 6}, 7, 0, {0, 26}, {0, 2, 4, 6, 16, 18, 20, 22, 24}},
  };
  for (const Case& c : cases) {
    const auto explored = explore(
        [this, &c] {
          fill(c.regions);
          for (const std::size_t i : c.erased_before) index.erase(&items[i]);
          Scheduled* item = c.put_at == 0 ? &items[c.erased] : &items.emplace_back();
          return test::Scenario{
              {[this, item, &c] { c.put_at == 0 ? index.erase(item) : put(item, c.put_at); },
               expects_overlap({c.range.begin * kStep, c.range.end * kStep}, c.present)},
              [this] { clear(); }};
        },
        3, static_cast<std::uint64_t>(kExhaustive * test::test_scale()));
    EXPECT_GT(explored.schedules, 1000u) << c.what;
    ASSERT_FALSE(HasFailure()) << c.what;
  }
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
