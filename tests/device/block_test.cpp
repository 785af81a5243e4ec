// Rows of a call's memory: which ranges they touch, by looking at each row, and batches of them.
#include "device/cuda/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pinion::cuda {
namespace {

Block rows_of(Range first, std::size_t pitch, std::size_t rows, std::size_t slice = 0,
              std::size_t layers = 1) {
  Block block = first;
  block.pitch = pitch, block.rows = rows;
  block.slice = slice, block.layers = layers;
  return block;
}

std::vector<Range> each_row(const Block& block) {
  std::vector<Range> all;
  for (std::size_t layer = 0; !block.empty() && layer < block.layers; ++layer) {
    for (std::size_t row = 0; row < block.rows; ++row) {
      const std::size_t at = layer * block.slice + row * block.pitch;
      all.push_back({block.first.begin + at, block.first.end + at});
    }
  }
  return all;
}

bool any_overlaps(const std::vector<Range>& ranges, Range range) {
  return !range.empty() &&
         std::any_of(ranges.begin(), ranges.end(), [&](Range one) { return one.overlaps(range); });
}

TEST(Block, TouchesItsRowsAlone) {
  const Block block = rows_of({100, 110}, 20, 3, 100, 2);
  const std::vector<Range> rows = each_row(block);
  EXPECT_EQ(rows.back(), (Range{240, 250}));
  EXPECT_EQ(block.hull(), (Range{100, 250}));
  for (Address begin = 90; begin < 260; ++begin)
    for (Address end = begin; end < 270; ++end)
      ASSERT_EQ(block.touches({begin, end}), any_overlaps(rows, {begin, end})) << begin << " to " << end;
}

TEST(Block, WithoutBytesTouchesNothing) {
  EXPECT_TRUE(Block().empty());
  EXPECT_TRUE(Block().hull().empty());
  EXPECT_FALSE(Block().touches({0, 1000}));
}

TEST(Block, ARowMoreThanTheAddressSpaceBehindIsNoneOfMemory) {
  const Block block = rows_of({4096, 8192}, kAddressEnd / 4, 3);
  EXPECT_TRUE(block.touches({kAddressEnd / 2, kAddressEnd / 2 + 4097}));
  EXPECT_FALSE(block.touches({kAddressEnd / 2 + 8192, kAddressEnd / 2 + (1 << 30)}));
}

/// Against a look at each row.
TEST(Blocks, InOrderAreFoundWhatTheyTouch) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  constexpr std::size_t kStep = kLeastRegistered;
  for (int round = 0; round < 300; ++round) {
    std::vector<Block> blocks;
    std::vector<Range> rows;
    for (std::size_t i = below(12); i > 0; --i) {
      const Address begin = kStep * (1 + below(60));
      const std::size_t width = below(3) * kStep / 2, pitch = width + kStep * below(4) + 1;
      const std::size_t count = 1 + below(4), slice = pitch * count + kStep * below(3);
      const Block block = rows_of({begin, begin + width}, pitch, count, slice, 1 + below(2));
      for (const Range row : each_row(block)) rows.push_back(row);
      blocks.push_back(block);
    }
    const std::span<const Block> ordered = order(blocks);
    for (Address begin = 0; begin < 90 * kStep; begin += kStep / 2) {
      // No registration is smaller.
      const Range range{begin, begin + kStep + below(2 * kStep)};
      ASSERT_EQ(touch(ordered, range), any_overlaps(rows, range)) << round << ": " << begin;
    }
  }
}

}  // namespace
}  // namespace pinion::cuda
