// Segments of the arena: registered once, doomed by changes of their memory, returned by the heap.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "fixture.h"
#include "monitor/memory_events.h"
#include "process/engine.h"
#include "support/eventually.h"
#include "support/in_child.h"
#include "support/strict_overcommit.h"

namespace pinion::arena_test {
namespace {

TEST_F(ArenaTest, OneRegistrationServesAllBlocksOfASegment) {
  start();
  std::vector<char*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(kMiB));
  for (int round = 0; round < 3; ++round)
    for (char* block : blocks) EXPECT_TRUE(serves(block + 100, kMiB - 100));
  EXPECT_EQ(registrations(), 1u);
  const ArenaFigures figures = Engine::running()->arena().figures();
  EXPECT_EQ(figures.served, 24u);
  EXPECT_EQ(figures.requests, 24u);
  EXPECT_EQ(figures.registrations, 1u);
  Transfer transfer;
  EXPECT_FALSE(lease(blocks[0], kMiB, transfer, Access::remote_read)) << "peers get no key of a segment";
  char outside = 0;
  EXPECT_FALSE(lease(&outside, 1, transfer));
  for (char* block : blocks) process_heap().free(block);
}

// 5 % and a granule are left for blocks to come.
TEST_F(ArenaTest, LittleIsRegisteredBesideTheBlocks) {
  for (const std::size_t first : {5 * kMiB, 33 * kMiB, 70 * kMiB}) {
    start();
    std::vector<std::pair<char*, std::size_t>> blocks;
    std::size_t live = 0;
    for (const std::size_t bytes : {first, 5 * kMiB, 20 * kMiB, kMiB, 33 * kMiB}) {
      char* const block = take(bytes);
      ASSERT_NE(block, nullptr);
      blocks.emplace_back(block, bytes);
      std::memset(block, static_cast<char>(blocks.size()), bytes);
      EXPECT_TRUE(serves(block, bytes));
      live += bytes;
      EXPECT_LE(registered(), live + live / 20 + blocks.size() * 2 * kMiB);
    }
    const std::uint64_t before = registrations();
    EXPECT_LE(before, blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_TRUE(serves(blocks[i].first, blocks[i].second));
      EXPECT_TRUE(is_filled(blocks[i].first, blocks[i].second, static_cast<char>(i + 1)));
    }
    EXPECT_EQ(registrations(), before) << "each segment once";
    for (const auto& [block, bytes] : blocks) process_heap().free(block);
    Engine::stop();
  }
}

// Memory that is cut off a segment may have contents.
TEST_F(ArenaTest, FreedMemoryBehindARegisteredPartIsClearedForItsNextBlock) {
  start();
  char* const block = take(4 * kMiB);
  char* const behind = take(16 * kMiB);
  std::memset(behind, 7, 16 * kMiB);
  process_heap().free(behind);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  EXPECT_LE(registered(), 6 * kMiB);
  char* const again = take(14 * kMiB, true);
  EXPECT_GE(again, behind);
  EXPECT_LT(again, behind + 4 * kMiB);
  EXPECT_TRUE(is_filled(again, 14 * kMiB, 0));
  EXPECT_TRUE(serves(again, 14 * kMiB));
  process_heap().free(block);
  process_heap().free(again);
}

TEST_F(ArenaTest, ANewSegmentIsServedWhereOneWasClosedForGood) {
  start();
  test::FakeDevice& device = borrow_device(true);  // one that gives peers keys
  char* const block = take(4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  Transfer of_peers;
  ASSERT_TRUE(lease_path().lease_alone(*this_thread(), domain_, {}, Range::of(block, kMiB),
                                       Access::remote_write, of_peers, Refusal::report));
  lease_path().release(*this_thread(), of_peers);
  EXPECT_TRUE(test::eventually([&] { return device.live() == 1; })) << "the segment is deregistered";
  EXPECT_FALSE(serves(block, 4 * kMiB));
  process_heap().free(block);
  process_heap().relieve();
  char* const again = take(4 * kMiB);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(serves(again, 4 * kMiB));
  process_heap().free(again);
}

TEST_F(ArenaTest, DroppedPagesAreClearedAndStayRegistered) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  const std::uint64_t before = Engine::running()->arena().figures().cleared_bytes;
  ASSERT_EQ(advise(block, 2 * kMiB, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_filled(block, 2 * kMiB, 0));
  EXPECT_EQ(block[2 * kMiB], 7);
  EXPECT_TRUE(serves(block, 4 * kMiB));
  EXPECT_EQ(registrations(), 1u);
  EXPECT_EQ(Engine::running()->arena().figures().cleared_bytes - before, 2 * kMiB);
  process_heap().free(block);
}

TEST_F(ArenaTest, UnmappedMemoryStaysRegisteredWithoutRights) {
  for (const char* device : {"emulated", "pin"}) {
    const auto [block, other] = start_with_two_blocks(device);
    ASSERT_EQ(::munmap(block + kMiB, kMiB), 0);
    EXPECT_FALSE(is_readable(block + kMiB));
    EXPECT_TRUE(is_filled(block, kMiB, 7));
    EXPECT_TRUE(is_filled(block + 2 * kMiB, 2 * kMiB, 7));
    EXPECT_TRUE(serves(other, 4 * kMiB)) << "its segment is the same";
    process_heap().free(block);
    char* const again = take(4 * kMiB, true);
    EXPECT_EQ(again, block) << "the lowest addresses";
    EXPECT_TRUE(is_filled(again, 4 * kMiB, 0));
    std::memset(again, 8, 4 * kMiB);
    EXPECT_TRUE(serves(again, 4 * kMiB));
    EXPECT_EQ(registrations(), 1u);
    const ArenaFigures figures = Engine::running()->arena().figures();
    EXPECT_EQ(figures.doomed, 0u);
    EXPECT_EQ(figures.withheld_bytes, kMiB);
    process_heap().free(again);
    process_heap().free(other);
    Engine::stop();
  }
}

// The program may have unmapped it while a limit kept its segment unregistered.
TEST_F(ArenaTest, UnmappedMemoryOfAnUnregisteredSegmentBecomesABlockAgain) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  ASSERT_EQ(::munmap(block, 2 * kMiB), 0);
  EXPECT_FALSE(is_readable(block));
  process_heap().free(block);
  char* const again = take(4 * kMiB, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_filled(again, 4 * kMiB, 0));
  EXPECT_TRUE(serves(again, 4 * kMiB));
  process_heap().free(again);
}

TEST_F(ArenaTest, AMappingOverABlockDoomsTheSegment) {
  start();
  char* const block = take(4 * kMiB);
  char* const other = take(4 * kMiB);
  Transfer held;
  ASSERT_TRUE(lease(other, 4 * kMiB, held));
  ASSERT_EQ(::mmap(block, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            block);
  EXPECT_FALSE(serves(block, kMiB));
  EXPECT_FALSE(serves(other, kMiB)) << "its segment is the same";
  EXPECT_NE(registered(), 0u) << "a lease is out";
  lease_path().release(*this_thread(), held);
  wait_until([] { return registered() == 0; });
  EXPECT_EQ(Engine::running()->arena().figures().doomed, 1u);
  process_heap().free(block);
  process_heap().free(other);
}

TEST_F(ArenaTest, MemoryWithoutRightsLeavesItsSegmentRegistered) {
  for (const char* device : {"emulated", "pin"}) {
    const auto [block, other] = start_with_two_blocks(device);
    ASSERT_EQ(::mprotect(block, kMiB, PROT_NONE), 0);
    EXPECT_TRUE(serves(other, 4 * kMiB));
    EXPECT_EQ(registrations(), 1u);
    EXPECT_EQ(Engine::running()->arena().figures().doomed, 0u);
    // Allocators do this; the pages are others from then on.
    ASSERT_EQ(advise(block, kMiB, MADV_DONTNEED), 0);
    EXPECT_FALSE(is_readable(block));
    EXPECT_TRUE(test::eventually([&] { return serves(other, 4 * kMiB); }));
    EXPECT_FALSE(serves(block, kMiB)) << "it lacks rights";
    EXPECT_TRUE(serves(block + kMiB, 3 * kMiB));
    EXPECT_EQ(registrations(), 2u) << "of the rest";
    process_heap().free(block);
    char* const again = take(4 * kMiB, true);
    EXPECT_EQ(again, block);
    EXPECT_TRUE(is_filled(again, 4 * kMiB, 0));
    process_heap().free(again);
    process_heap().free(other);
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, AMappingOverABlockIsServedNoMore) {
  start();
  char* const block = take(4 * kMiB);
  char* const other = take(4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  const int file = map_shared_over(block, kMiB, 5);
  EXPECT_TRUE(test::eventually([&] { return serves(other, 4 * kMiB); }));
  EXPECT_FALSE(serves(block, kMiB));
  EXPECT_TRUE(acquires(block, kMiB)) << "the ordinary way";
  test::in_child([&] { std::memset(block, 6, kMiB); });
  EXPECT_TRUE(is_filled(block, kMiB, 6)) << "shared with the child";
  // Neither unmapped nor freed memory leads a later block into the file.
  ASSERT_EQ(::munmap(block, kMiB / 2), 0);
  EXPECT_FALSE(is_readable(block));
  process_heap().free(block);
  char* const again = take(4 * kMiB, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_filled(again, 4 * kMiB, 0));
  std::memset(again, 9, 4 * kMiB);
  EXPECT_TRUE(file_is_filled(file, kMiB, 6));
  EXPECT_TRUE(test::eventually([&] { return serves(other, 4 * kMiB); }));
  ::close(file);
  process_heap().free(again);
  process_heap().free(other);
}

TEST_F(ArenaTest, MemoryThatMovesLeavesItsPlaceMapped) {
  start();
  char* const block = take(4 * kMiB);
  char* const other = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  char* const moved = static_cast<char*>(::mremap(block, kMiB, 3 * kMiB, MREMAP_MAYMOVE));
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_FALSE(process_arena().range().overlaps(Range::of(moved, 3 * kMiB)));
  EXPECT_TRUE(is_filled(moved, kMiB, 7));
  EXPECT_TRUE(is_filled(moved + kMiB, 2 * kMiB, 0));
  EXPECT_TRUE(is_readable(block)) << "no other mapping gets these addresses";
  // In place: longer is impossible, shorter as by munmap.
  EXPECT_EQ(::mremap(block + kMiB, kMiB, 2 * kMiB, 0), MAP_FAILED);
  EXPECT_EQ(::mremap(block + kMiB, 2 * kMiB, kMiB, 0), block + kMiB);
  EXPECT_TRUE(is_filled(block + kMiB, kMiB, 7));
  EXPECT_FALSE(is_readable(block + 2 * kMiB));
  ASSERT_EQ(::mremap(block + kMiB, kMiB, kMiB, MREMAP_MAYMOVE | MREMAP_FIXED, moved + kMiB), moved + kMiB);
  EXPECT_TRUE(is_filled(moved, 2 * kMiB, 7));
  EXPECT_TRUE(serves(other, 4 * kMiB));
  EXPECT_EQ(registrations(), 1u);
  EXPECT_EQ(Engine::running()->arena().figures().doomed, 0u);
  ASSERT_EQ(::munmap(moved, 3 * kMiB), 0);
  process_heap().free(block);
  process_heap().free(other);
}

TEST_F(ArenaTest, ASegmentGoesWithItsBlocksAndComesBackEmpty) {
  start();
  char* const block = take(30 * kMiB);
  std::memset(block, 7, 30 * kMiB);
  ASSERT_TRUE(serves(block, 30 * kMiB));
  process_heap().free(block);
  ASSERT_TRUE(process_heap().relieve());
  wait_until([] { return registered() == 0 && process_arena().figures().segments == 0; });
  char* const again = take(30 * kMiB, true);
  EXPECT_EQ(again, block) << "the lowest addresses";
  EXPECT_TRUE(is_filled(again, 30 * kMiB, 0));
  EXPECT_TRUE(serves(again, 30 * kMiB));
  process_heap().free(again);
}

// malloc_trim does this (intercept/malloc/heap.cpp).
TEST_F(ArenaTest, FreeMemoryBesideABlockGoesBackWhereNoDeviceHasIt) {
  for (const bool registered : {false, true}) {
    start();
    char* const freed = take(24 * kMiB);
    char* const block = take(8 * kMiB);
    std::memset(freed, 7, 24 * kMiB);
    std::memset(block, 8, 8 * kMiB);
    if (registered) {
      ASSERT_TRUE(serves(block, 8 * kMiB));
    }
    process_heap().free(freed);
    EXPECT_EQ(process_heap().relieve(), !registered);
    EXPECT_LE(resident(freed, 24 * kMiB), registered ? 24 * kMiB : 2 * kHugepage) << "but for its ends";
    EXPECT_TRUE(is_filled(block, 8 * kMiB, 8));
    char* const again = take(24 * kMiB, true);
    EXPECT_EQ(again, freed);
    EXPECT_TRUE(is_filled(again, 24 * kMiB, 0));
    EXPECT_TRUE(serves(again, 24 * kMiB));
    process_heap().free(again);
    process_heap().free(block);
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, WhereUntouchedMemoryIsChargedFreeMemoryBesideABlockIsNot) {
  const test::StrictOvercommit strict;
  start();
  constexpr std::size_t kLarge = 23 * kMiB;
  char* const freed = take(kLarge);
  char* const block = take(64 << 10);
  const Range segment = process_arena().devices().at(reinterpret_cast<Address>(block));
  ASSERT_TRUE(segment.contains(Range::of(freed, kLarge))) << "both lie in one segment";
  std::memset(freed, 7, kLarge);
  std::memset(block, 8, 64 << 10);
  EXPECT_GE(test::StrictOvercommit::charged_bytes(segment), kLarge);
  for (int round = 0; round < 3; ++round) {
    process_heap().free(freed);
    EXPECT_LE(test::StrictOvercommit::charged_bytes(segment), 2 * kHugepage) << "but for its ends";
    EXPECT_TRUE(is_filled(block, 64 << 10, 8));
    EXPECT_TRUE(serves(block, 64 << 10)) << "what has no rights is not registered";
    Engine::stop();  // its registrations end
    start();
    ASSERT_EQ(take(kLarge, true), freed);
    EXPECT_TRUE(is_filled(freed, kLarge, 0));
    std::memset(freed, 7, kLarge);
  }
  EXPECT_TRUE(serves(freed, kLarge));
  process_heap().free(freed);
  process_heap().free(block);
}

TEST_F(ArenaTest, ASegmentThatHasGoneMeanwhileIsNotPinned) {
  start();
  char* const block = take(4 * kMiB);
  const Range request = Range::of(block, 4 * kMiB);
  DeviceSegments& devices = process_arena().devices();
  process_heap().free(block);
  process_heap().relieve();
  const Range gone = devices.at(request.begin);
  ASSERT_TRUE(gone.empty());
  EXPECT_TRUE(devices.pin(gone, request).empty());
}

TEST_F(ArenaTest, AMappingOverFreeMemoryIsNotDropped) {
  start();
  char* const freed = static_cast<char*>(process_heap().map(24 * kMiB));
  char* const block = take(4 * kMiB);
  ASSERT_TRUE(process_heap().unmap(Range::of(freed, 24 * kMiB)));
  ASSERT_TRUE(process_heap().lay_over_free(Range::of(freed + 8 * kMiB, 2 * kMiB)));
  char* const over = static_cast<char*>(::mmap(freed + 8 * kMiB, 2 * kMiB, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
  std::memset(over, 5, 2 * kMiB);
  process_heap().relieve();
  EXPECT_TRUE(is_filled(over, 2 * kMiB, 5));
  EXPECT_TRUE(process_heap().unmap(Range::of(over, 2 * kMiB)));
  process_heap().free(block);
}

TEST_F(ArenaTest, AFreedSegmentStaysMappedUnderALease) {
  start();
  char* const block = take(30 * kMiB);
  std::memset(block, 7, 30 * kMiB);
  Transfer held;
  ASSERT_TRUE(lease(block, 30 * kMiB, held));
  process_heap().free(block);
  ASSERT_TRUE(process_heap().relieve());
  EXPECT_FALSE(serves(block, kMiB)) << "the heap has given it back";
  char* const other = take(30 * kMiB);
  EXPECT_NE(other, block);
  EXPECT_TRUE(is_filled(block, 30 * kMiB, 7)) << "the transfer goes on";
  EXPECT_EQ(process_arena().figures().segments, 2u);
  lease_path().release(*this_thread(), held);
  wait_until([] { return registered() == 0 && process_arena().figures().segments == 1; });
  process_heap().free(other);
}

TEST_F(ArenaTest, AChangeAcrossTheArenasEdgeLeavesItsMark) {
  start();
  char* const block = take(4 * kMiB);
  const Address begin = process_arena().range().begin;
  ASSERT_EQ(reinterpret_cast<Address>(block), begin) << "the lowest addresses";
  const Range across{begin - page_size(), begin + kMiB};  // below, the memory may be others': as a hook alone
  memory_events::begin({across, Answer::refuse, ChangeKind::rights});
  memory_events::end(across);
  EXPECT_FALSE(process_arena().changes().is_whole({begin, begin + kMiB}));
  EXPECT_TRUE(process_arena().changes().is_whole({begin + kMiB, begin + 4 * kMiB}));
  process_heap().free(block);
}

}  // namespace
}  // namespace pinion::arena_test
