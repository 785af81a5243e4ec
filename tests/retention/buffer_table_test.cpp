// The table of buffers: by pages, by range, and its size.
#include <gtest/gtest.h>

#include "retention/buffers.h"

namespace pinion {
namespace {

Range pages(std::size_t first, std::size_t count) {
  return {(first + 1) * page_size(), (first + 1 + count) * page_size()};
}

TEST(BufferTable, GivesEachRangeOneNumberAndGivesNumbersAgain) {
  BufferTable table;
  const auto [first, is_new] = table.add(pages(0, 2));
  EXPECT_TRUE(is_new);
  EXPECT_EQ(table.add(pages(0, 2)), std::pair(first, false));
  const BufferId second = table.add(pages(0, 4)).first;
  EXPECT_NE(first, second) << "another range with the same begin is another buffer";
  EXPECT_EQ(table.all_pages(), 6u);
  EXPECT_EQ(table.find(pages(0, 4)), &table[second]);
  table.remove(first);
  EXPECT_FALSE(table.is_live(first));
  EXPECT_EQ(table.find(pages(0, 2)), nullptr);
  EXPECT_EQ(table.all_pages(), 4u);
  EXPECT_EQ(table.add(pages(9, 1)).first, first);
  EXPECT_FALSE(table.is_live(77)) << "a number that was never given";
}

TEST(BufferTable, FindsThoseInARangeAndThoseThatOverlapIt) {
  BufferTable table;
  const BufferId low = table.add(pages(0, 2)).first, inner = table.add(pages(4, 2)).first,
                 wide = table.add(pages(1, 9)).first, high = table.add(pages(10, 3)).first;
  EXPECT_EQ(table.in(pages(3, 10)), (std::vector<BufferId>{inner, high}));
  EXPECT_EQ(table.overlapping(pages(3, 2)), (std::vector<BufferId>{wide, inner}));
  EXPECT_EQ(table.overlapping(pages(2, 1)), (std::vector<BufferId>{wide}));
  EXPECT_EQ(table.overlapping(pages(1, 1)), (std::vector<BufferId>{low, wide}));
  table.remove(inner);
  EXPECT_EQ(table.in(pages(3, 10)), (std::vector<BufferId>{high})) << "an answer lasts until a buffer goes";
}

TEST(BufferTable, ForgetsTheLongestUnusedHalfWhenItIsFull) {
  BufferTable table;
  BufferId last = 0;
  std::size_t dropped = 0;
  for (std::size_t i = 0; dropped == 0; ++i) {
    ASSERT_LT(i, 100000u);
    last = table.add(pages(i, 1)).first;
    table[last].last_use = static_cast<Time>(i);
    table.forget_oldest(last, [&](BufferId id) {
      EXPECT_LT(table[id].last_use, static_cast<Time>(i + 1) / 2);
      table.remove(id);
      ++dropped;
    });
  }
  EXPECT_EQ(dropped, table.size() - 1);
  EXPECT_TRUE(table.is_live(last));
}

}  // namespace
}  // namespace pinion
