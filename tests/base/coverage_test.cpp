#include "base/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace pinion {
namespace {

Range pages(std::size_t begin, std::size_t end) { return {begin * page_size(), end * page_size()}; }

struct Collect {
  std::vector<Range>& seen;
  void operator()(Range r) const { seen.push_back(r); }
};

TEST(Coverage, UnionGrowsOnlyByWhatIsNew) {
  Coverage coverage;
  EXPECT_EQ(coverage.add(pages(10, 20)), pages(0, 10).bytes());
  EXPECT_EQ(coverage.add(pages(15, 25)), pages(0, 5).bytes());
  EXPECT_EQ(coverage.add(pages(12, 13)), 0u);
  EXPECT_EQ(coverage.bytes(), pages(10, 25).bytes());
  EXPECT_EQ(coverage.remove(pages(10, 20)), pages(0, 4).bytes());  // 10-12 and 13-15
  EXPECT_EQ(coverage.remove(pages(15, 25)), pages(0, 10).bytes());
  EXPECT_EQ(coverage.remove(pages(12, 13)), pages(0, 1).bytes());
  EXPECT_EQ(coverage.bytes(), 0u);
}

TEST(Coverage, CallsBackForMaximalSubRanges) {
  Coverage coverage;
  coverage.add(pages(2, 4));
  coverage.add(pages(6, 7));
  std::vector<Range> seen;
  coverage.add(pages(1, 9), Collect{seen});
  EXPECT_EQ(seen, (std::vector<Range>{pages(1, 2), pages(4, 6), pages(7, 9)}));

  seen.clear();
  coverage.remove(pages(2, 4), Collect{seen});
  EXPECT_TRUE(seen.empty());
  coverage.remove(pages(1, 9), Collect{seen});
  EXPECT_EQ(seen, (std::vector<Range>{pages(1, 6), pages(7, 9)}));
}

TEST(Coverage, EraseForgetsEveryCount) {
  Coverage coverage;
  coverage.add(pages(0, 10));
  coverage.add(pages(5, 10));
  EXPECT_EQ(coverage.erase(pages(4, 8)), pages(0, 4).bytes());
  EXPECT_EQ(coverage.erase(pages(4, 8)), 0u);
  EXPECT_EQ(coverage.bytes(), pages(0, 6).bytes());
  EXPECT_EQ(coverage.remove(pages(0, 10)), pages(0, 4).bytes());  // 0-4; 8-10 is still counted once
  EXPECT_EQ(coverage.remove(pages(5, 10)), pages(0, 2).bytes());
  EXPECT_EQ(coverage.bytes(), 0u);
}

TEST(Coverage, EmptyRangesChangeNothing) {
  Coverage coverage;
  EXPECT_EQ(coverage.add(pages(3, 3)), 0u);
  EXPECT_EQ(coverage.remove(pages(3, 3)), 0u);
  EXPECT_EQ(coverage.erase(pages(3, 3)), 0u);
  EXPECT_EQ(coverage.would_add(pages(3, 3)), 0u);
  EXPECT_TRUE(coverage.covers(pages(3, 3)));
  EXPECT_FALSE(coverage.covers(pages(3, 4)));
}

// Compares the same random changes with a plain count per page, the definition itself.
TEST(Coverage, AgreesWithCountsPerPage) {
  constexpr std::size_t kPages = 64;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Coverage coverage;
    std::vector<unsigned> counts(kPages, 0);
    std::vector<Range> live;
    for (int turn = 0; turn < 100; ++turn) {
      std::size_t begin = random() % kPages;
      std::size_t end = random() % (kPages + 1);
      if (end < begin) std::swap(begin, end);
      const unsigned action = random() % 8;
      std::size_t expected = 0;
      std::size_t changed = 0;
      std::size_t called = 0;
      const auto call = [&](Range r) { called += r.bytes(); };
      if (action == 0) {
        for (std::size_t p = begin; p < end; ++p) {
          expected += counts[p] != 0;
          counts[p] = 0;
        }
        changed = coverage.erase(pages(begin, end));
        called = changed;
      } else if (action < 4 && !live.empty()) {
        std::swap(live[random() % live.size()], live.back());
        const Range r = live.back();
        live.pop_back();
        for (std::size_t p = r.begin / page_size(); p < r.end / page_size(); ++p) {
          if (counts[p] != 0) expected += --counts[p] == 0;
        }
        changed = coverage.remove(r, call);
      } else {
        live.push_back(pages(begin, end));
        const std::size_t would_add = coverage.would_add(pages(begin, end));
        const bool covers = coverage.covers(pages(begin, end));
        for (std::size_t p = begin; p < end; ++p) expected += counts[p]++ == 0;
        EXPECT_EQ(would_add, expected * page_size());
        EXPECT_EQ(covers, expected == 0);
        changed = coverage.add(pages(begin, end), call);
      }
      ASSERT_EQ(changed, expected * page_size());
      ASSERT_EQ(called, changed);
      std::size_t covered = 0;
      for (unsigned count : counts) covered += count != 0;
      ASSERT_EQ(coverage.bytes(), covered * page_size());
    }
  }
}

// Ranges that grow the map to many blocks: upwards, downwards, and in no order.
TEST(Coverage, ManyRangesComeAndGoInAnyOrder) {
  constexpr std::size_t kRanges = 4000;
  std::mt19937 random(11);
  for (const bool shuffled : {false, true}) {
    std::vector<std::size_t> order(kRanges);
    std::iota(order.begin(), order.end(), 0);
    std::reverse(order.begin(), order.begin() + kRanges / 2);
    if (shuffled) std::shuffle(order.begin(), order.end(), random);
    Coverage coverage;
    std::vector<bool> there(kRanges, false);
    const auto range = [](std::size_t i) { return pages(3 * i + 1, 3 * i + 3); };
    const auto all_are_right = [&] {
      std::size_t count = 0;
      for (std::size_t i = 0; i < kRanges; ++i) {
        ASSERT_EQ(coverage.would_add(range(i)), there[i] ? 0 : 2 * page_size()) << i;
        ASSERT_EQ(coverage.would_add(pages(3 * i, 3 * i + 1)), page_size()) << i;
        count += there[i];
      }
      ASSERT_EQ(coverage.bytes(), count * 2 * page_size());
      ASSERT_EQ(coverage.would_add(pages(0, 3 * kRanges)), pages(0, 3 * kRanges).bytes() - coverage.bytes());
    };
    for (const std::size_t i : order) {
      ASSERT_EQ(coverage.add(range(i)), 2 * page_size());
      there[i] = true;
    }
    all_are_right();
    for (std::size_t i = 0; i < kRanges; ++i) {
      if (random() % 2 == 0) continue;
      ASSERT_EQ(coverage.remove(range(i)), 2 * page_size());
      there[i] = false;
    }
    all_are_right();
    const Range gone = {range(kRanges / 3).begin, range(kRanges / 2).end};
    const std::size_t missing = coverage.would_add(gone);
    ASSERT_EQ(coverage.erase(gone), gone.bytes() - missing);
    std::fill(there.begin() + kRanges / 3, there.begin() + kRanges / 2 + 1, false);
    all_are_right();
    coverage.erase({0, ~Address{0}});
    std::fill(there.begin(), there.end(), false);
    all_are_right();
  }
}

TEST(Coverage, UnionsOfOneObjectAreCountedApart) {
  Coverages<2> both;
  EXPECT_EQ(both.add<0>(pages(0, 10)), pages(0, 10).bytes());
  EXPECT_EQ(both.add<1>(pages(5, 15)), pages(0, 10).bytes());
  EXPECT_EQ(both.add<1>(pages(0, 10)), pages(0, 5).bytes());
  EXPECT_EQ(both.would_add<0>(pages(0, 20)), pages(0, 10).bytes());
  EXPECT_EQ(both.would_add<1>(pages(0, 20)), pages(0, 5).bytes());
  EXPECT_EQ(both.erase<0>(pages(3, 4)), pages(0, 1).bytes());
  EXPECT_EQ(both.remove<1>(pages(0, 10)), pages(0, 5).bytes());
  EXPECT_EQ(both.bytes<0>(), pages(0, 9).bytes());
  EXPECT_EQ(both.bytes<1>(), pages(0, 10).bytes());
}

}  // namespace
}  // namespace pinion
