// Rounding to pages of any size, by made mappings: 1 GiB, mixed ones, mappings that end within a page.
#include "base/large_pages.h"

#include <gtest/gtest.h>

#include <vector>

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kGiB = std::size_t{1} << 30;
constexpr std::size_t kHuge = 2 * kMiB;
constexpr Address kBase = Address{1} << 40;

/// Finds in a list, in any order.
LargeRange around(Range request, const std::vector<PagedMemory>& mappings) {
  return large_pages_around(request, [&](Address at, PagedMemory& found) {
    for (const PagedMemory& mapping : mappings) {
      if (at < mapping.range.begin || at >= mapping.range.end) continue;
      found = mapping;
      return true;
    }
    return false;
  });
}

Range at(std::size_t begin, std::size_t end) { return {kBase + begin, kBase + end}; }

TEST(LargePages, EachEndIsRoundedToTheHugepage) {
  const std::vector<PagedMemory> mappings{{at(0, 64 * kMiB), kHuge}};
  const LargeRange inside = around(at(5 * kMiB + 1, 5 * kMiB + 2), mappings);
  EXPECT_EQ(inside.range, at(4 * kMiB, 6 * kMiB));
  EXPECT_EQ(inside.page_bytes, kHuge);
  EXPECT_EQ(around(at(5 * kMiB, 6 * kMiB + 1), mappings).range, at(4 * kMiB, 8 * kMiB));
  EXPECT_EQ(around(at(4 * kMiB, 6 * kMiB), mappings).range, at(4 * kMiB, 6 * kMiB)) << "already whole";
  EXPECT_EQ(around(at(0, 64 * kMiB), mappings).range, at(0, 64 * kMiB));
}

TEST(LargePages, PagesOfAGibibyte) {
  const std::vector<PagedMemory> mappings{{at(0, 3 * kGiB), kGiB}};
  const LargeRange large = around(at(kGiB - 1, kGiB + 1), mappings);
  EXPECT_EQ(large.range, at(0, 2 * kGiB));
  EXPECT_EQ(large.page_bytes, kGiB);
}

TEST(LargePages, OrdinaryAndMissingMemoryHasNone) {
  EXPECT_TRUE(around(at(0, 100), {{at(0, kMiB), page_size()}}).empty());
  EXPECT_TRUE(around(at(0, 100), {}).empty());
  EXPECT_TRUE(around(at(0, 2 * kMiB + 1), {{at(0, 2 * kMiB), kHuge}}).empty()) << "its end is unmapped";
}

TEST(LargePages, NeverBeyondTheMapping) {
  const std::vector<PagedMemory> odd{{at(kMiB, 3 * kMiB), kHuge}};
  EXPECT_EQ(around(at(kMiB + 100, kMiB + 200), odd).range, at(kMiB, 2 * kMiB));
  EXPECT_EQ(around(at(2 * kMiB, 2 * kMiB + 1), odd).range, at(2 * kMiB, 3 * kMiB));
}

TEST(LargePages, EachEndIsRoundedByItsOwnMapping) {
  const std::vector<PagedMemory> mixed{{at(0, kHuge), kHuge}, {at(kHuge, 2 * kHuge), page_size()}};
  const LargeRange from_huge = around(at(kMiB, kHuge + 10), mixed);
  EXPECT_EQ(from_huge.range, at(0, kHuge + page_size()));
  EXPECT_EQ(from_huge.page_bytes, kHuge);
  const std::vector<PagedMemory> other{{at(0, kHuge), page_size()}, {at(kHuge, 2 * kHuge), kHuge}};
  EXPECT_EQ(around(at(kMiB + 1, kHuge + 10), other).range, at(kMiB, 2 * kHuge));
  const std::vector<PagedMemory> sizes{{at(0, kGiB), kHuge}, {at(kGiB, 2 * kGiB), kGiB}};
  const LargeRange both = around(at(kGiB - 1, kGiB + 1), sizes);
  EXPECT_EQ(both.range, at(kGiB - kHuge, 2 * kGiB));
  EXPECT_EQ(both.page_bytes, kGiB);
}

TEST(LargePages, AListKnowsThePagesThatItWasGiven) {
  LargePages list;
  EXPECT_TRUE(list.around(at(0, 1)).empty());
  list.add({at(0, kHuge), kHuge});
  list.add({at(2 * kHuge, 3 * kHuge), kHuge});
  EXPECT_EQ(list.around(at(10, 20)).range, at(0, kHuge));
  EXPECT_TRUE(list.around(at(kHuge, kHuge + 1)).empty());
  EXPECT_EQ(list.around(at(kHuge - 1, kHuge + 1)).range, at(0, kHuge + page_size()));
  list.add({at(kHuge, 2 * kHuge), kHuge});
  EXPECT_EQ(list.around(at(kHuge - 1, 2 * kHuge + 1)).range, at(0, 3 * kHuge));
  list.add({at(0, kGiB), kGiB});
  EXPECT_EQ(list.around(at(10, 20)).range, at(0, kGiB)) << "new memory in its place";
}

TEST(LargePages, AListForgetsMemoryThatIsGone) {
  LargePages list;
  list.add({at(0, 4 * kHuge), kHuge});
  list.erase(at(kHuge, 2 * kHuge));
  EXPECT_EQ(list.around(at(0, 1)).range, at(0, kHuge));
  EXPECT_TRUE(list.around(at(kHuge, kHuge + 1)).empty());
  EXPECT_EQ(list.around(at(2 * kHuge, 2 * kHuge + 1)).range, at(2 * kHuge, 3 * kHuge));
  list.erase({0, ~Address{0}});
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace pinion
