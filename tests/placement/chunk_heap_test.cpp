// The heap's middle layer: what walks its extents looks at each of them once at most.
#include "placement/chunk_heap.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/made_pages.h"

namespace pinion {
namespace {

constexpr std::size_t kChunks = kHugepage / kChunk;

/// Extents of one area, all free but for their ends: fragments of a chunk, and some of a hugepage.
TEST(FreeExtents, FragmentsCostNothingWhereHugepagesAreWanted) {
  std::vector<Extent> extents(20'000);
  ExtentTree tree;
  Address at = kHugepage;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    extents[i].begin = at;
    extents[i].chunks = i % 5'000 == 77 ? kChunks : 1;
    at += 2 * extents[i].bytes();
    tree.insert(extents[i]);
  }
  std::vector<const Extent*> seen;
  tree.downwards(kChunks, [&](const Extent& extent) {
    seen.push_back(&extent);
    return true;
  });
  EXPECT_EQ(seen,
            (std::vector<const Extent*>{&extents[15'077], &extents[10'077], &extents[5'077], &extents[77]}));
  unsigned all = 0;
  tree.downwards(1, [&](const Extent&) { return ++all < 1'000; });
  EXPECT_EQ(all, 1'000U);
}

// Another thread may have a mapping again where one has just ended.
TEST(ChunkHeap, AnUnmappingTakesEachMappingOnceAndInTheirOrder) {
  constexpr std::size_t kMappings = 64;
  test::MadePages pages;
  const auto arena = std::make_unique<Arena>(pages);
  const auto map = std::make_unique<AreaMap>();
  ChunkHeap heap(pages, *arena, *map);
  const auto map_one = [&] {
    Extent* const block = heap.allocate(kChunk, kChunk);
    block->mapped = true;
    return block;
  };
  std::vector<Extent*> mappings;
  for (std::size_t i = 0; i < kMappings; ++i) mappings.push_back(map_one());
  const Range whole{mappings.front()->begin, mappings.back()->end()};
  ASSERT_EQ(whole.bytes(), kMappings * kChunk);

  Range left = whole;
  ASSERT_TRUE(heap.cut_mappings(left));
  ChunkHeap::Idle piece;
  for (std::size_t i = 0; i < kMappings; ++i) {
    ASSERT_TRUE(heap.take_mapping(left, piece));
    EXPECT_EQ(piece.extent->begin, whole.begin + i * kChunk);
    EXPECT_EQ(left.begin, piece.extent->end());
    EXPECT_GE(heap.returned(piece, ChunkHeap::Fate::kept), left.begin);
    if (i % 8 == 0) {
      EXPECT_LT(map_one()->begin, left.begin);
    }
  }
  EXPECT_FALSE(heap.take_mapping(left, piece));
  EXPECT_EQ(heap.mapped_bytes(whole), kMappings / 8 * kChunk);
  for (left = whole; heap.take_mapping(left, piece);) heap.returned(piece, ChunkHeap::Fate::kept);
  EXPECT_EQ(heap.mapped_bytes(whole), 0U);
  ChunkHeap::Idle area;
  ASSERT_EQ(heap.take_idle(&area, 1, true), 1U);
  arena->unmap(heap.forget_area(area));
}

// One look for all of them: a look for each began at the start of the area.
TEST(ChunkHeap, MappingsThatEndedPastTheHeapAreFoundSideBySide) {
  constexpr std::size_t kBlocks = 64;
  test::MadePages pages;
  const auto arena = std::make_unique<Arena>(pages);
  ASSERT_TRUE(arena->reserve(std::size_t{64} << 20, false));
  const auto map = std::make_unique<AreaMap>();
  ChunkHeap heap(pages, *arena, *map);
  std::vector<Extent*> blocks;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(heap.allocate(kChunk, kChunk));
    blocks.back()->mapped = i != 0 && i != kBlocks / 2;  // the others are of malloc
  }
  const Address begin = blocks.front()->begin;
  const Range ended{begin, begin + (kBlocks - 1) * kChunk};
  ASSERT_EQ(blocks.back()->begin, ended.end);
  ASSERT_TRUE(arena->changes().withhold(ended));

  const Range below{begin + kChunk, blocks[kBlocks / 2]->begin};
  const Range above{blocks[kBlocks / 2]->end(), ended.end};
  EXPECT_EQ(heap.take_withheld(), below);
  EXPECT_EQ(heap.take_withheld(), above);
  EXPECT_EQ(heap.take_withheld(), Range{}) << "blocks of malloc end by free()";
}

}  // namespace
}  // namespace pinion
