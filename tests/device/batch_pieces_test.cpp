// BatchPieces of a batch: which memory they have, in which order, and the room that they take.
#include "device/cuda/batch_pieces.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "device/cuda/block.h"

namespace pinion::cuda {
namespace {

TEST(BatchPieces, JoinWhereNothingCanLieBetweenThem) {
  const auto piece = [](Address i) { return Range{i * 8192, i * 8192 + 4096}; };
  BatchPieces ascending;
  for (Address i = 1; i <= 1000; ++i) ascending.add(piece(i));
  ascending.add(Range{0, 0});
  const Range all{8192, 1000 * 8192 + 4096};
  ASSERT_EQ(ascending.blocks().size(), 1u);
  const Address apart = all.end + kLeastRegistered;
  BatchPieces descending;
  descending.add(Range{apart, apart + 1});
  for (Address i = 1000; i > 0; --i) descending.add(piece(i));
  const std::span<const Block> blocks = order(descending.blocks());
  ASSERT_EQ(blocks.size(), 2u) << "a registration may lie between";
  EXPECT_EQ(blocks[0].hull(), all);
  EXPECT_EQ(blocks[1].reach, apart + 1);
}

TEST(BatchPieces, OfTwoSidesAreExtendedApart) {
  constexpr Address kOther = Address{1} << 40;
  BatchPieces pieces;
  for (Address i = 1; i <= 1000; ++i) {
    pieces.add(Range{i * 4096, (i + 1) * 4096}, 0);
    pieces.add(Range{kOther + i * 4096, kOther + (i + 1) * 4096}, 1);
  }
  const std::span<const Block> blocks = pieces.blocks();
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0].hull(), (Range{4096, 1001 * 4096}));
  EXPECT_EQ(blocks[1].hull(), (Range{kOther + 4096, kOther + 1001 * 4096}));
}

TEST(BatchPieces, RowsThatLieCloseAreOneRunAndOthersStayRows) {
  Block close(Range{kLeastRegistered, kLeastRegistered + 100});
  close.pitch = 100 + kLeastRegistered - 1, close.rows = 3;
  Block far(Range{8 * kLeastRegistered, 8 * kLeastRegistered + 100});
  far.pitch = 100 + kLeastRegistered, far.rows = 3;
  Block layers(Range{16 * kLeastRegistered, 16 * kLeastRegistered + 100});
  layers.pitch = 200, layers.rows = 2, layers.layers = 2, layers.slice = 300 + kLeastRegistered;
  BatchPieces pieces;
  for (const Block& block : {layers, far, close, Block()}) pieces.add(block, 1);
  const std::span<const Block> blocks = order(pieces.blocks());
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].first, close.hull());
  EXPECT_EQ(blocks[1].rows, 3u);
  EXPECT_EQ(blocks[2].layers, 2u);
}

/// Against all the bytes that were added, for numbers on both sides of those from which another sort is used.
TEST(BatchPieces, InAnyOrderAreThoseThatWereAddedAndOrdered) {
  std::mt19937_64 random(11);
  for (const std::size_t count : {3u, 100u, 255u, 256u, 3000u}) {
    for (const std::size_t span : {std::size_t{1} << 22, std::size_t{1} << 30, std::size_t{1} << 44}) {
      std::vector<Range> added;
      BatchPieces pieces;
      for (std::size_t i = 0; i < count; ++i) {
        const Address begin = 4096 + random() % span;
        added.push_back({begin, begin + 1 + random() % (2 * kLeastRegistered)});
        pieces.add(added.back());
      }
      const std::span<Block> blocks = pieces.blocks();
      ASSERT_TRUE(std::is_sorted(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
        return a.first.begin < b.first.begin;
      }));
      const std::span<const Block> ordered = order(blocks);
      for (const Range piece : added) EXPECT_TRUE(touch(ordered, piece)) << count << " in " << span;
      // What is far from all of them is none of the batch's.
      std::sort(added.begin(), added.end(), [](Range a, Range b) { return a.begin < b.begin; });
      Address end = 0;
      for (const Range piece : added) {
        const Range gap{end, piece.begin};
        if (gap.begin < gap.end && gap.bytes() >= kLeastRegistered) {
          EXPECT_FALSE(touch(ordered, gap)) << count;
        }
        end = std::max(end, piece.end);
      }
    }
  }
}

TEST(BatchPieces, OfTheNextBatchHaveTheRoomOfTheLastOne) {
  const auto batch = [](std::size_t count) {
    BatchPieces pieces;
    for (std::size_t i = count; i-- > 0;)
      pieces.add(Range{4 * i * kLeastRegistered + 1, 4 * i * kLeastRegistered + 100});
    EXPECT_EQ(pieces.blocks().size(), count);
  };
  const BatchPieces first;
  {
    BatchPieces second;
    second.add(Range{1, 2});
    EXPECT_EQ(second.blocks().size(), 1u) << "each has room of its own";
  }
  batch(10'000);
  const std::size_t kept = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  batch(10'000);
  if (kept == 0) GTEST_SKIP() << "a sanitizer's allocator counts nothing";
  EXPECT_EQ(::mallinfo2().uordblks + ::mallinfo2().hblkhd, kept);
  batch(1'000'000);
  EXPECT_LT(::mallinfo2().uordblks + ::mallinfo2().hblkhd, kept) << "megabytes go back";
}

}  // namespace
}  // namespace pinion::cuda
