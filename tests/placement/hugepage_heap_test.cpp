// The hugepage heap: against a model, with contents; first fit, merging, return of memory, forks, a source
// that fails. PINION_TEST_SCALE multiplies the steps; 10 makes it ten million.
#include "placement/hugepage_heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "monitor/memory_events.h"
#include "support/deterministic_scheduler.h"
#include "support/in_child.h"
#include "support/made_pages.h"
#include "support/memory_marks.h"
#include "support/sanitizers.h"
#include "support/strict_overcommit.h"

namespace pinion {

namespace {

using test::MadePages;
using test::StrictOvercommit;

/// The places where a stamp shows that a block's contents are its own: both ends, and between.
void stamp(void* block, std::size_t bytes, std::uint64_t value) {
  auto* const at = static_cast<char*>(block);
  for (const std::size_t offset : {std::size_t{0}, bytes / 2 / 8 * 8, (bytes - 8) / 8 * 8})
    std::memcpy(at + offset, &value, sizeof value);
}
bool has_stamp(const void* block, std::size_t bytes, std::uint64_t value) {
  const auto* const at = static_cast<const char*>(block);
  return std::memcmp(at, &value, sizeof value) == 0 &&
         std::memcmp(at + bytes / 2 / 8 * 8, &value, sizeof value) == 0 &&
         std::memcmp(at + (bytes - 8) / 8 * 8, &value, sizeof value) == 0;
}
bool is_zero(const void* block, std::size_t bytes) {
  const auto* const at = static_cast<const char*>(block);
  return at[0] == 0 && std::memcmp(at, at + 1, bytes - 1) == 0;
}

/// The heap is 128 KiB of tables: not for the stack.
struct Made {
  MadePages pages;
  std::unique_ptr<Arena> no_arena = std::make_unique<Arena>(pages);
  std::unique_ptr<HugepageHeap> heap = std::make_unique<HugepageHeap>(pages, *no_arena);

  char* take(std::size_t bytes, std::size_t alignment = 1, bool zeroed = false) {
    return static_cast<char*>(heap->allocate(bytes, alignment, zeroed));
  }
};

// ---- a model ----

class Model {
 public:
  Model(Made& made, unsigned seed) : made_(made), random_(seed) {}

  void step() {
    const unsigned choice = random_() % 100;
    if (choice < 48 || blocks_.empty()) {
      allocate();
    } else if (choice < 92) {
      free_one();
    } else if (choice < 99) {
      resize();
    } else if (random_() % 64 == 0) {
      made_.heap->relieve();
    }
    // Otherwise the number of blocks wanders off.
    while (blocks_.size() > 300) free_one();
  }
  void free_all() {
    while (!blocks_.empty()) free_one();
  }
  std::uint64_t live_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [at, block] : blocks_) sum += made_.heap->usable_bytes(at);
    return sum;
  }

 private:
  struct Block {
    std::size_t bytes;
    std::uint64_t value;
  };

  std::size_t some_bytes() {
    const unsigned most = random_() % 50 == 0 ? 8 << 20 : 200 << 10;
    return (32 << 10) + random_() % most;
  }
  void allocate() {
    const std::size_t bytes = some_bytes();
    const std::size_t alignment = random_() % 8 == 0 ? std::size_t{1} << (random_() % 23) : 1;
    const bool zeroed = random_() % 16 == 0;
    char* const at = made_.take(bytes, alignment, zeroed);
    if (at == nullptr) {
      ASSERT_NE(made_.pages.fail_one_in, 0u);
      return;
    }
    ASSERT_EQ(reinterpret_cast<Address>(at) % std::max<std::size_t>(alignment, kChunk), 0u);
    ASSERT_GE(made_.heap->usable_bytes(at), bytes);
    if (zeroed) {
      ASSERT_TRUE(is_zero(at, bytes));
    }
    put(at, bytes);
  }
  void put(char* at, std::size_t bytes) {
    const auto next = blocks_.lower_bound(at);
    if (next != blocks_.end()) {
      ASSERT_LE(at + bytes, next->first);
    }
    if (next != blocks_.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, at);
    }
    stamp(at, bytes, ++value_);
    blocks_[at] = {bytes, value_};
  }
  std::map<char*, Block>::iterator any() {
    // Near a random address: as good as any.
    auto found = blocks_.lower_bound(blocks_.begin()->first + random_() % (64u << 20));
    return found == blocks_.end() ? blocks_.begin() : found;
  }
  void free_one() {
    const auto block = any();
    ASSERT_TRUE(has_stamp(block->first, block->second.bytes, block->second.value));
    made_.heap->free(block->first);
    blocks_.erase(block);
  }
  void resize() {
    const auto found = any();
    char* const at = found->first;
    const Block block = found->second;
    const std::size_t bytes = some_bytes();
    if (!made_.heap->resize(at, bytes)) return;
    ASSERT_EQ(std::memcmp(at, &block.value, sizeof block.value), 0);
    blocks_.erase(found);
    put(at, bytes);
  }

  Made& made_;
  std::mt19937 random_;
  std::map<char*, Block> blocks_;
  std::uint64_t value_ = 0;
};

std::uint64_t model_steps() {
  const double scale = test::test_scale();
  const double steps = scale >= 10 ? 1e6 * scale : 1e5 * scale;
  return static_cast<std::uint64_t>(kSanitized ? steps / 10 : steps);
}

void run_model(Made& made, unsigned seed, std::uint64_t steps) {
  Model model(made, seed);
  for (std::uint64_t i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) {
    model.step();
    if (i % 4096 == 0) {
      ASSERT_EQ(made.heap->figures().live_bytes, model.live_bytes());
    }
  }
  model.free_all();
  EXPECT_EQ(made.heap->figures().live_bytes, 0u);
  made.pages.fail_one_in = 0;
  made.heap->relieve();
  // Nothing of the areas was lost: all extents merged into whole ones again.
  EXPECT_EQ(made.pages.mapped_bytes, 0u);
  EXPECT_EQ(made.heap->used_bytes(), 0u);
}

TEST(HugepageHeap, MatchesTheModel) {
  Made made;
  run_model(made, 1, model_steps());
}

TEST(HugepageHeap, MatchesTheModelWhileTheSourceFails) {
  Made made;
  made.pages.fail_one_in = 3;
  run_model(made, 2, model_steps() / 4);
  EXPECT_GT(made.pages.failures, 0u);
}

// ---- placement ----

TEST(HugepageHeap, AFreedBlockStaysAsItIsAndServesTheNextOfItsSize) {
  Made made;
  char* const first = made.take(64 << 10);
  char* const second = made.take(64 << 10);
  ASSERT_EQ(first + (64 << 10), second);
  char* const third = made.take(64 << 10);
  made.heap->free(second);
  made.heap->free(first);
  EXPECT_EQ(made.take(64 << 10), first);
  EXPECT_EQ(made.take(32 << 10), second);  // the lowest address with room
  made.heap->free(third);
}

/// Replaces random blocks by others; the live set stays. Returns the share of memory beyond the live set.
double growth_of(std::size_t count, std::size_t least, std::size_t most, std::size_t alignment) {
  Made made;
  std::mt19937 random{1};
  std::vector<char*> blocks(count);
  const auto take = [&] { return made.take(least + random() % (most - least + 1), alignment); };
  for (char*& block : blocks) block = take();
  for (std::size_t i = 0; i < 10 * count; ++i) {
    char*& block = blocks[random() % count];
    made.heap->free(block);
    block = take();
  }
  return static_cast<double>(made.heap->used_bytes()) / static_cast<double>(made.heap->figures().live_bytes) -
         1;
}

// The kernel hands out addresses downwards, so that new areas lie below the holes of older ones.
TEST(HugepageHeap, AConstantLiveSetTakesAConstantAmountOfMemory) {
  EXPECT_LT(growth_of(30'000, 33 << 10, 33 << 10, 1), .02);
  EXPECT_LT(growth_of(20'000, 33 << 10, 36 << 10, 1), .02);
}

// The bounds leave room beyond what glibc takes.
TEST(HugepageHeap, AConstantLiveSetOfMixedSizesTakesLittleMore) {
  EXPECT_LT(growth_of(3'000, 33 << 10, 200 << 10, 1), .12);
  EXPECT_LT(growth_of(1'000, 64 << 10, 512 << 10, 64 << 10), .22);
  EXPECT_LT(growth_of(400, 33 << 10, 2'000 << 10, 1), .28);
}

TEST(HugepageHeap, AlignedBlocksFillTheHolesOfOthers) {
  EXPECT_LT(growth_of(10'000, 64 << 10, 64 << 10, 64 << 10), .02);
}

TEST(HugepageHeap, NeighboursMergeWhenNothingElseFits) {
  Made made;
  std::vector<char*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(made.take(kHugepage));
  const std::size_t mapped = made.pages.mapped_bytes;
  ASSERT_EQ(mapped, 16 * kHugepage);
  for (const int i : {3, 1, 2, 9, 0, 15, 8, 7, 10, 4, 5, 6, 14, 13, 12, 11}) made.heap->free(blocks[i]);
  EXPECT_EQ(made.take(16 * kHugepage), blocks[0]);
  EXPECT_EQ(made.pages.mapped_bytes, mapped);
}

TEST(HugepageHeap, AlignmentsUpToBeyondAHugepage) {
  Made made;
  made.take(36 << 10);
  for (std::size_t alignment = 16; alignment <= std::size_t{64} << 20; alignment *= 2) {
    char* const at = made.take(100 << 10, alignment);
    ASSERT_NE(at, nullptr);
    EXPECT_EQ(reinterpret_cast<Address>(at) % alignment, 0u);
    stamp(at, 100 << 10, alignment);
  }
}

TEST(HugepageHeap, GrowsAndShrinksInPlace) {
  Made made;
  char* const block = made.take(40 << 10);
  stamp(block, 40 << 10, 7);
  EXPECT_TRUE(made.heap->resize(block, 4 << 20));
  EXPECT_GE(made.heap->usable_bytes(block), std::size_t{4} << 20);
  EXPECT_TRUE(has_stamp(block, 40 << 10, 7));
  char* const next = made.take(32 << 10);
  EXPECT_FALSE(made.heap->resize(block, 5 << 20));
  EXPECT_TRUE(made.heap->resize(block, 40 << 10));
  EXPECT_EQ(made.heap->figures().live_bytes, std::uint64_t{72} << 10);
  made.heap->free(next);
  made.heap->free(block);
}

// ---- what the program leaves on its blocks ----

/// Advises as the program does (intercept/malloc/mappings.cpp).
bool leave_advice(Made& made, char* at, std::size_t bytes, int advice) {
  if (::madvise(at, bytes, advice) != 0) return false;
  made.heap->note_left(Range::of(at, bytes), HugepageHeap::Left::advice);
  return true;
}

TEST(HugepageHeap, AdviceEndsWithItsBlock) {
  for (const int advice : {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP, MADV_MERGEABLE, MADV_NOHUGEPAGE,
                           MADV_RANDOM, MADV_SEQUENTIAL}) {
    Made made;
    char* const block = made.take(4 * kHugepage);
    if (!leave_advice(made, block + kHugepage, kHugepage, advice)) continue;  // a kernel without the feature
    ASSERT_NE(test::marks_at(block + kHugepage), "") << advice;
    char* const other = made.take(kHugepage);
    ASSERT_TRUE(leave_advice(made, other, kHugepage, advice));
    made.heap->free(block);
    char* const again = made.take(4 * kHugepage);
    ASSERT_EQ(again, block);
    EXPECT_EQ(test::marks_at(again + kHugepage), "") << advice;
    EXPECT_NE(test::marks_at(other), "") << "the block beside it lives";
    std::memset(again, 8, 4 * kHugepage);
    test::in_child([&] { EXPECT_EQ(again[kHugepage], 8); });
  }
}

TEST(HugepageHeap, RightsAndLocksEndWithTheirBlock) {
  Made made;
  char* const block = made.take(4 * kHugepage);
  ASSERT_EQ(::mprotect(block, kHugepage, PROT_NONE), 0);
  made.heap->note_left(Range::of(block, kHugepage), HugepageHeap::Left::advice);
  const bool locks = ::mlock(block + kHugepage, 4096) == 0;
  if (locks) made.heap->note_left(Range::of(block + kHugepage, 4096), HugepageHeap::Left::locks);
  made.heap->free(block);
  char* const again = made.take(4 * kHugepage);
  ASSERT_EQ(again, block);
  EXPECT_EQ(test::marks_at(again + kHugepage), "");
  std::memset(again, 7, 4 * kHugepage);
}

TEST(HugepageHeap, AdviceEndsWithThePartThatAShrinkingBlockGivesUp) {
  Made made;
  char* const block = made.take(4 * kHugepage);
  ASSERT_TRUE(leave_advice(made, block, 4 * kHugepage, MADV_DONTFORK));
  ASSERT_TRUE(made.heap->resize(block, 2 * kHugepage));
  EXPECT_EQ(test::marks_at(block), "dc");
  EXPECT_EQ(test::marks_at(block + 2 * kHugepage), "");
}

TEST(HugepageHeap, AdviceOnOtherMemoryIsPassedOver) {
  Made made;
  char* const block = made.take(kHugepage);
  char on_the_stack[64];
  made.heap->note_left(Range::of(on_the_stack, sizeof on_the_stack), HugepageHeap::Left::advice);
  made.heap->note_left({0, kHugepage}, HugepageHeap::Left::locks);
  made.heap->free(block);
  EXPECT_EQ(made.take(kHugepage), block);
}

// The child has no memory there, and the kernel refuses to treat it as the parent's.
TEST(HugepageHeap, AChildFreesABlockThatItLacks) {
  Made made;
  char* const block = made.take(4 * kHugepage);
  ASSERT_TRUE(leave_advice(made, block, 4 * kHugepage, MADV_DONTFORK));
  test::in_child([&] {
    made.heap->free(block);
    char* const other = made.take(4 * kHugepage);
    ASSERT_NE(other, nullptr);
    std::memset(other, 7, 4 * kHugepage);
  });
}

TEST(HugepageHeap, ZeroedBlocksAreZeroWhereOthersLayBefore) {
  Made made;
  char* const block = made.take(3 * kHugepage + kChunk);
  std::memset(block, 1, 3 * kHugepage + kChunk);
  char* const rest = made.take(12 * kHugepage);
  rest[12 * kHugepage - 1] = 1;
  made.heap->free(block);
  made.heap->free(rest);
  char* const again = made.take(16 * kHugepage, 1, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_zero(again, 16 * kHugepage));
}

TEST(HugepageHeapDeathTest, APointerIntoABlockOrFreedTwiceEndsTheProcess) {
  Made made;
  char* const block = made.take(64 << 10);
  EXPECT_DEATH(made.heap->free(block + kChunk), "no block of the hugepage heap");
  made.heap->free(block);
  EXPECT_DEATH(made.heap->free(block), "no block of the hugepage heap");
}

// ---- memory for the kernel ----

/// Counts the events in an area's addresses.
class CountingSink final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    if (change.range.overlaps(watched)) ++events;
    return Answer::proceed;
  }
  Range watched;
  std::atomic<int> events{0};
};

TEST(HugepageHeap, MemoryThatGoesBackIsAMemoryEventAndAFreeIsNone) {
  static CountingSink sink;  // a sink is never destroyed
  Made made;
  char* const block = made.take(8 * kHugepage);
  std::memset(block, 1, 8 * kHugepage);
  sink.watched = Range::of(block, 8 * kHugepage);
  ASSERT_FALSE(memory_events::add(sink));
  char* const stays = made.take(64 << 10);
  made.heap->free(block);
  EXPECT_EQ(sink.events, 0);
  EXPECT_TRUE(made.heap->relieve());
  EXPECT_GE(sink.events, 1);
  EXPECT_EQ(made.pages.discarded_bytes, 8 * kHugepage);
  memory_events::remove(sink);
  EXPECT_TRUE(is_zero(made.take(8 * kHugepage, 1, true), 8 * kHugepage));
  made.heap->free(stays);
}

TEST(HugepageHeap, WhereUntouchedMemoryIsChargedThatOfBlocksAloneIs) {
  const StrictOvercommit strict;
  Made made;
  constexpr std::size_t kBlock = std::size_t{12} << 20, kBlocks = 8, kEnds = 2 * kHugepage;
  const std::size_t before = StrictOvercommit::charged_bytes() + (std::size_t{1} << 20);  // with records
  for (int round = 0; round < 3; ++round) {
    std::vector<char*> blocks;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      blocks.push_back(made.take(kBlock - i * 4096 * static_cast<unsigned>(round)));
      ASSERT_NE(blocks.back(), nullptr);
      stamp(blocks.back(), kBlock / 2, i);
      EXPECT_LE(StrictOvercommit::charged_bytes(), before + (i + 1) * kBlock + kEnds);
    }
    for (std::size_t i = 0; i < kBlocks; ++i) {
      made.heap->free(blocks[i]);
      EXPECT_LE(StrictOvercommit::charged_bytes(), before + (kBlocks - 1 - i) * kBlock + kEnds);
    }
    EXPECT_LE(StrictOvercommit::charged_bytes(), before + kEnds);
  }
}

TEST(HugepageHeap, MatchesTheModelWhereUntouchedMemoryIsCharged) {
  const StrictOvercommit strict;
  Made made;
  run_model(made, 4, model_steps() / 4);
}

TEST(HugepageHeap, KeepsHalfOfItsLargestUseIdle) {
  Made made;
  std::vector<char*> blocks;
  constexpr std::size_t kBlock = 4 * kHugepage,
                        kBlocks = 64;  // 512 MiB, of which each page but the first stays untouched
  for (std::size_t i = 0; i < kBlocks; ++i) blocks.push_back(made.take(kBlock));
  for (char* block : blocks) made.heap->free(block);
  const std::uint64_t peak = kBlock * kBlocks;
  EXPECT_LE(made.heap->used_bytes(), peak / 2 + (std::uint64_t{16} << 20));
  EXPECT_GE(made.heap->used_bytes(), peak / 2);
  EXPECT_GT(made.pages.offered_bytes, 0u);
  EXPECT_EQ(made.pages.discarded_bytes, 0u);
}

TEST(HugepageHeap, BlocksInOfferedMemoryAreRightAndCountAgain) {
  Made made;
  std::vector<char*> blocks;
  constexpr std::size_t kBlock = 4 * kHugepage, kBlocks = 40;
  const auto fill = [&](bool zeroed) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      char* const block = blocks.emplace_back(made.take(kBlock, 1, zeroed));
      if (zeroed) {
        EXPECT_TRUE(is_zero(block, kBlock));
      }
      for (std::size_t at = 0; at < kBlock; at += 4096) block[at] = 7;
    }
    EXPECT_EQ(made.heap->used_bytes(), kBlock * kBlocks);
    for (char* block : blocks) made.heap->free(block);
    blocks.clear();
    EXPECT_LT(made.heap->used_bytes(), kBlock * kBlocks);
  };
  fill(false);
  const std::size_t offered = made.pages.offered_bytes;
  EXPECT_GT(offered, 0u);
  fill(true);
  EXPECT_GT(made.pages.offered_bytes, offered);
  EXPECT_TRUE(made.heap->relieve()) << "what was offered is still mapped";
  EXPECT_EQ(made.heap->used_bytes(), 0u);
  EXPECT_EQ(made.pages.mapped_bytes, 0u);
}

// The kernel's count has what it was offered until it takes it.
TEST(HugepageHeap, NoMoreLiesInHugepagesThanHasContents) {
  Made made;
  std::vector<char*> blocks;
  for (std::size_t i = 0; i < 40; ++i) {
    blocks.push_back(made.take(4 * kHugepage));
    std::memset(blocks.back(), 7, 4 * kHugepage);
  }
  for (char* block : blocks) made.heap->free(block);
  ASSERT_GT(made.pages.offered_bytes, 0u);
  EXPECT_GT(made.heap->touched_bytes(), made.heap->used_bytes());
  EXPECT_LE(made.heap->transparent_bytes(), made.heap->touched_bytes());
  made.heap->relieve();
  EXPECT_EQ(made.heap->touched_bytes(), 0u);
}

TEST(HugepageHeap, AShortSourceGetsAllIdleMemoryBackBeforeABlockIsRefused) {
  Made made;
  char* const block = made.take(16 * kHugepage);
  made.heap->free(block);
  made.pages.fail_one_in = 1;
  EXPECT_EQ(made.take(64 * kHugepage), nullptr);
  made.pages.fail_one_in = 0;
  EXPECT_NE(made.take(64 * kHugepage), nullptr);
}

TEST(HugepageHeap, UnderAnAddressLimitBlocksAreRefusedAndComeBack) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need addresses without limit";
  test::in_child([] {
    Made made;
    std::FILE* const statm = std::fopen("/proc/self/statm", "re");
    unsigned long pages = 0;
    ASSERT_EQ(std::fscanf(statm, "%lu", &pages), 1);
    std::fclose(statm);
    const rlimit limit{pages * page_size() + (std::size_t{256} << 20), RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
    for (int round = 0; round < 3; ++round) {
      std::vector<char*> blocks;
      blocks.reserve(64);
      while (char* const block = made.take(8 << 20)) {
        stamp(block, 8 << 20, blocks.size());
        blocks.push_back(block);
      }
      EXPECT_GT(blocks.size(), 20u);
      EXPECT_LT(blocks.size(), 40u);
      for (std::size_t i = 0; i < blocks.size(); ++i) EXPECT_TRUE(has_stamp(blocks[i], 8 << 20, i));
      for (char* block : blocks) made.heap->free(block);
    }
    // Smaller blocks than fill an area again: the addresses of whole ones come back.
    char* const large = made.take(128 << 20);
    EXPECT_NE(large, nullptr);
  });
}

// ---- room and forks ----

TEST(HugepageHeap, AGrownBlockHasRoomToGrowInPlace) {
  Made made;
  char* const block = static_cast<char*>(made.heap->allocate_to_grow(4 * kHugepage));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(made.heap->usable_bytes(block), 4 * kHugepage);
  EXPECT_EQ(made.heap->figures().live_bytes, 4 * kHugepage);
  EXPECT_EQ(made.heap->used_bytes(), 4 * kHugepage) << "the room has not been touched";
  EXPECT_TRUE(made.heap->resize(block, 8 * kHugepage));
}

TEST(HugepageHeap, RecordsAreNoLargerThanTheirArea) {
  Made made;
  made.pages.gives_least = true;
  for (int i = 0; i < 4; ++i) ASSERT_NE(made.take(kHugepage), nullptr);  // areas of one hugepage each
  EXPECT_LT(made.pages.record_bytes, 4 * Area::record_size(16 * kHugepage)) << "as for what was wanted";
}

// The program may set the limit itself.
TEST(HugepageHeap, WhereAddressesBecomeLimitedFreeAreasGoBack) {
  constexpr std::size_t kBlock = std::size_t{8} << 20, kArea = std::size_t{32} << 20;
  Made made;
  std::vector<char*> blocks(48);
  const auto fill = [&] {
    for (char*& block : blocks) {
      block = made.take(kBlock);
      stamp(block, kBlock, 1);
    }
    for (char* block : blocks) made.heap->free(block);
  };
  fill();
  ASSERT_GT(made.pages.mapped_bytes, blocks.size() * kBlock);
  made.heap->spare_addresses();
  made.heap->relieve();
  EXPECT_EQ(made.pages.mapped_bytes, 0u);
  fill();
  EXPECT_LE(made.pages.mapped_bytes, (std::size_t{64} << 20) + 2 * kArea);
}

TEST(HugepageHeap, WhereAddressesAreLimitedAreasAreSmallAndFreeOnesGoBack) {
  constexpr std::size_t kBlock = std::size_t{8} << 20, kArea = std::size_t{32} << 20;
  Made made;
  made.heap->spare_addresses();
  std::vector<char*> blocks(48);
  for (char*& block : blocks) {
    block = made.take(kBlock);
    stamp(block, kBlock, 1);
  }
  // A test beside this one may reserve pages meanwhile, of which an area gets what there is.
  EXPECT_LE(made.pages.mapped_bytes, blocks.size() * kBlock + kArea);
  for (char* block : blocks) made.heap->free(block);
  // This much stays idle, besides what the last look at it left.
  EXPECT_LE(made.pages.mapped_bytes, (std::size_t{64} << 20) + 2 * kArea);
}

/// Its map() calls `in_map`, under a shard's mutex.
class WatchedPages final : public PageSource {
 public:
  std::function<void()> in_map = [] {};

  Pages map(std::size_t least, std::size_t wanted) override {
    in_map();
    return kernel_.map(least, wanted);
  }
  bool discard(Range hugepages) override { return kernel_.discard(hugepages); }
  bool offer(Range hugepages) override { return kernel_.offer(hugepages); }
  void unmap(const Pages& pages) override { kernel_.unmap(pages); }
  void* map_records(std::size_t bytes) override { return kernel_.map_records(bytes); }
  void unmap_records(void* records, std::size_t bytes) override { kernel_.unmap_records(records, bytes); }

 private:
  KernelPages kernel_;
};

TEST(HugepageHeap, MappingsDoNotWaitForAThreadThatStaysInside) {
  std::atomic<bool> inside{false}, stops{true};
  WatchedPages pages;
  pages.in_map = [&] {  // as a thread that a collector has stopped there
    inside = true;
    inside.notify_all();
    stops.wait(true);
  };
  const auto no_arena = std::make_unique<Arena>(pages);
  auto heap = std::make_unique<HugepageHeap>(pages, *no_arena);
  std::thread stopped([&] { heap->free(heap->allocate(kHugepage, 1, false)); });
  inside.wait(false);
  const Range range{kHugepage, 2 * kHugepage};
  EXPECT_EQ(heap->map(kHugepage), nullptr);
  EXPECT_FALSE(heap->has_mapping(range));
  EXPECT_FALSE(heap->unmap(range));
  stops = false;
  stops.notify_all();
  stopped.join();
  EXPECT_TRUE(heap->unmap(range)) << "none of its blocks are there";
}

/// The system then ends a process that waits for itself.
constexpr unsigned kHandlerSeconds = 30;

/// Runs `handler` in a signal handler that interrupts the thread inside the heap, with a block that was
/// there.
void interrupt_heap(std::function<void(HugepageHeap&, void*)> handler) {
  static std::function<void()> run;
  WatchedPages pages;
  const auto no_arena = std::make_unique<Arena>(pages);
  auto heap = std::make_unique<HugepageHeap>(pages, *no_arena);
  void* const block = heap->allocate(kHugepage, 1, false);
  run = [&] { handler(*heap, block); };
  bool interrupted = false;
  pages.in_map = [&] {
    if (std::exchange(interrupted, true)) return;
    ASSERT_EQ(::signal(SIGUSR1, [](int) { run(); }), SIG_DFL);
    ::raise(SIGUSR1);
    ::signal(SIGUSR1, SIG_DFL);
  };
  ::alarm(kHandlerSeconds);
  void* const large = heap->allocate(64 * kHugepage, 1, false);
  EXPECT_TRUE(interrupted);
  ASSERT_NE(large, nullptr);
  heap->free(large);
  heap->free(heap->allocate(kHugepage, 1, false));
  ::alarm(0);
}

TEST(HugepageHeap, AHandlerInsideIsRefused) {
  interrupt_heap([](HugepageHeap& heap, void* block) {
    EXPECT_EQ(heap.allocate(kHugepage, 1, false), nullptr) << "the next allocator serves it";
    EXPECT_FALSE(heap.resize(block, 2 * kHugepage));
    EXPECT_FALSE(heap.relieve());
    EXPECT_EQ(heap.figures().blocks, 0u);
    EXPECT_EQ(heap.transparent_bytes(), 0u);
    heap.free(block);
    EXPECT_EQ(heap.usable_bytes(block), kHugepage) << "it stays a block";
  });
}

TEST(HugepageHeap, AHandlerInsideForks) {
  interrupt_heap([](HugepageHeap& heap, void* block) {
    stamp(block, kHugepage, 1);
    heap.before_fork();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      heap.after_fork_in_child();
      ::_exit(has_stamp(block, kHugepage, 1) && heap.allocate(kHugepage, 1, false) == nullptr ? 0 : 1);
    }
    heap.after_fork_in_parent();
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(HugepageHeap, ParentAndChildHaveBlocksOfTheirOwnAfterAFork) {
  Made made;
  char* const kept = made.take(2 * kHugepage);
  char* const freed = made.take(2 * kHugepage);
  stamp(kept, 2 * kHugepage, 1);
  stamp(freed, 2 * kHugepage, 2);
  made.heap->before_fork();
  char* const meanwhile = made.take(64 << 10);  // another handler allocates
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    made.heap->after_fork_in_child();
    bool good = has_stamp(kept, 2 * kHugepage, 1) && has_stamp(freed, 2 * kHugepage, 2);
    stamp(kept, 2 * kHugepage, 3);
    made.heap->free(freed);
    char* const block = made.take(kHugepage);
    good = good && block == freed;
    stamp(block, kHugepage, 4);
    ::_exit(good && has_stamp(kept, 2 * kHugepage, 3) ? 0 : 1);
  }
  made.heap->after_fork_in_parent();
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(has_stamp(kept, 2 * kHugepage, 1) && has_stamp(freed, 2 * kHugepage, 2));
  made.heap->free(meanwhile);
  made.heap->free(kept);
}

/// Allocates and frees blocks until `done`, with contents checked.
void allocate_until(Made& made, const std::atomic<bool>& done, unsigned seed) {
  struct Block {
    char* at;
    std::size_t bytes;
  };
  std::mt19937 random(seed);
  std::vector<Block> blocks(6);
  while (!done) {
    Block& block = blocks[random() % blocks.size()];
    if (block.at != nullptr) {
      EXPECT_TRUE(has_stamp(block.at, block.bytes, seed));
      made.heap->free(block.at);
    }
    block.bytes = (64 << 10) + random() % (3 << 20);
    block.at = made.take(block.bytes);
    stamp(block.at, block.bytes, seed);
  }
  for (const Block& block : blocks)
    if (block.at != nullptr) made.heap->free(block.at);
}

TEST(HugepageHeap, ForksWhileThreadsAllocate) {
  Made made;
  made.heap->use_shards(3);
  char* const kept = made.take(3 << 20);
  stamp(kept, 3 << 20, 6);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 2; ++i) threads.emplace_back([&made, &done, i] { allocate_until(made, done, i); });
  for (int i = 0; i < 10; ++i) {
    made.heap->before_fork();
    const pid_t child = ::fork();
    if (child == 0) {
      made.heap->after_fork_in_child();
      bool good = has_stamp(kept, 3 << 20, 6);
      stamp(kept, 3 << 20, 7);
      char* const block = made.take(200 << 10);
      stamp(block, 200 << 10, 8);
      good = good && has_stamp(kept, 3 << 20, 7);
      made.heap->free(block);
      made.heap->free(kept);
      ::_exit(good ? 0 : 1);
    }
    made.heap->after_fork_in_parent();
    ASSERT_GE(child, 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(has_stamp(kept, 3 << 20, 6));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  made.heap->free(kept);
  EXPECT_EQ(made.heap->figures().live_bytes, 0u);
}

// ---- threads ----

TEST(HugepageHeap, ThreadsAllocateAndFreeEachOthersBlocks) {
  Made made;
  made.heap->use_shards(2);
  struct Slot {
    std::mutex mutex;
    char* block = nullptr;
    std::size_t bytes = 0;
    std::uint64_t value = 0;
  };
  std::vector<Slot> slots(32);
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    const int steps = static_cast<int>((kSanitized ? 2000 : 20000) * test::test_scale());
    for (int i = 0; i < steps; ++i) {
      const std::size_t bytes = (32 << 10) + random() % (256 << 10);
      char* block = made.take(bytes);
      stamp(block, bytes, seed + random());
      std::uint64_t value = 0;
      std::memcpy(&value, block, sizeof value);
      Slot& slot = slots[random() % slots.size()];
      std::size_t taken_bytes = bytes;
      {
        const std::lock_guard lock(slot.mutex);
        std::swap(slot.block, block);
        std::swap(slot.bytes, taken_bytes);
        std::swap(slot.value, value);
      }
      if (block == nullptr) continue;
      EXPECT_TRUE(has_stamp(block, taken_bytes, value));
      made.heap->free(block);
      if (random() % 500 == 0) made.heap->relieve();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  for (Slot& slot : slots) {
    if (slot.block == nullptr) continue;
    EXPECT_TRUE(has_stamp(slot.block, slot.bytes, slot.value));
    made.heap->free(slot.block);
  }
  EXPECT_EQ(made.heap->figures().live_bytes, 0u);
  made.heap->relieve();
  EXPECT_EQ(made.pages.mapped_bytes, 0u);
}

}  // namespace

}  // namespace pinion
