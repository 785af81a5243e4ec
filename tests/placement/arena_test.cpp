// The arena of the process's heap, and requests served from it: registration once, dooming, return by the
// heap, limits, refusals, forks, threads; then steps in any order, against a model. One arena a process; each
// test starts an engine of its own.
#include "placement/arena.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "monitor/memory_events.h"
#include "pinion/pinion.h"
#include "placement/hugepage_heap.h"
#include "support/deterministic_scheduler.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// All tests run for both kinds of segments (tests/CMakeLists.txt).
const bool kAliased = std::getenv("PINION_TEST_ALIASED") != nullptr;

/// Advises as the program does (intercept/malloc/mappings.cpp).
int advise(char* at, std::size_t bytes, int advice) {
  if (const auto result = process_arena().changes().advise(Range::of(at, bytes), advice, true)) {
    errno = *result;
    return *result == 0 ? 0 : -1;
  }
  return ::madvise(at, bytes, advice);
}

/// Marks of memory that the program has not changed: children lack an aliased segment at any time.
const std::string kUnmarked = kAliased ? "dc" : "";

class ArenaTest : public ::testing::Test {
 protected:
  /// Reserves the arena as the heap's library does (intercept/malloc/heap.cpp), once for all suites.
  static void SetUpTestSuite() {
    static const bool reserved = process_arena().reserve(8 * Arena::kGranule, false);
    ASSERT_TRUE(reserved);
    process_arena().alias_segments(kAliased);
    static const int watched =
        ::pthread_atfork([] { process_heap().before_fork(); }, [] { process_heap().after_fork_in_parent(); },
                         [] { process_heap().after_fork_in_child(); });
    ASSERT_EQ(watched, 0);
  }

  void start(std::uint64_t limit = 0, const char* device = "emulated", bool serves_peers = false) {
    Options options;
    options.preregister_remote = serves_peers;
    options.retention = RetentionKind::leave_pinned;
    options.device = device;
    options.nic = "none";
    if (limit != 0) options.limit = limit;
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
  }
  void TearDown() override {
    Engine::stop();
    process_heap().relieve();
  }

  static char* take(std::size_t bytes, bool zeroed = false) {
    return static_cast<char*>(process_heap().allocate(bytes, 1, zeroed));
  }
  /// Two blocks of 4 MiB; the first one is filled with 7 and served.
  std::pair<char*, char*> start_with_two_blocks(const char* device) {
    start(0, device);
    char* const block = take(4 * kMiB);
    char* const other = take(4 * kMiB);
    std::memset(block, 7, 4 * kMiB);
    EXPECT_TRUE(serves(block, 4 * kMiB));
    return {block, other};
  }
  static LeasePath& leases() { return Engine::running()->leases(); }
  /// The domain that requests go to is a new one, on a device that refuses where the test wants it.
  test::FakeDevice& borrow_device(bool remote = false) {
    auto made = std::make_unique<test::FakeDevice>();
    made->remote = remote;
    test::FakeDevice& device = *made;
    Error error;
    domain_ = Engine::running()->domains().borrow(std::move(made), error);
    EXPECT_GE(domain_, 0) << error.message;
    return device;
  }
  bool lease(const char* at, std::size_t bytes, Transfer& transfer, Access access = Access::write) const {
    return leases().lease_in_arena(*this_thread(), domain_, Range::of(at, bytes), access, transfer);
  }
  bool serves(const char* at, std::size_t bytes) const {
    Transfer transfer;
    if (!lease(at, bytes, transfer)) return false;
    leases().release(*this_thread(), transfer);
    return true;
  }
  /// One by one, beside the arena.
  bool acquire(const char* at, std::size_t bytes, Transfer& transfer) const {
    return leases().acquire(*this_thread(), domain_, {}, Range::of(at, bytes), Access::write, transfer,
                            Refusal::report);
  }
  bool acquires(const char* at, std::size_t bytes) const {
    Transfer transfer;
    if (!acquire(at, bytes, transfer)) return false;
    leases().release(*this_thread(), transfer);
    return true;
  }
  static std::uint64_t registrations() { return Engine::running()->counters().all().registrations; }
  static std::size_t registered() { return Engine::running()->domains().registered_bytes(); }
  template <class Condition>
  static void wait_until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  static bool is_filled(const char* at, std::size_t bytes, char value) {
    return at[0] == value && std::memcmp(at, at + 1, bytes - 1) == 0;
  }

  /// The kernel's answer for the byte, without a fault.
  static bool is_readable(const char* at) {
    char copy = 0;
    const iovec to{&copy, 1}, from{const_cast<char*>(at), 1};
    return ::syscall(SYS_process_vm_readv, ::getpid(), &to, 1, &from, 1, 0) == 1;
  }
  static bool is_writable(char* at) {
    char copy = *at;
    const iovec from{&copy, 1}, to{at, 1};
    return ::syscall(SYS_process_vm_writev, ::getpid(), &from, 1, &to, 1, 0) == 1;
  }

  int domain_ = 0;
};

TEST_F(ArenaTest, OneRegistrationServesAllBlocksOfASegment) {
  start();
  std::vector<char*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(take(kMiB));
  for (int round = 0; round < 3; ++round)
    for (char* block : blocks) EXPECT_TRUE(serves(block + 100, kMiB - 100));
  EXPECT_EQ(registrations(), 1u);
  const ArenaFigures figures = leases().arena().figures();
  EXPECT_EQ(figures.served, 24u);
  EXPECT_EQ(figures.requests, 24u);
  EXPECT_EQ(figures.registrations, 1u);
  Transfer transfer;
  EXPECT_FALSE(lease(blocks[0], kMiB, transfer, Access::remote_read)) << "peers get no key of a segment";
  char outside = 0;
  EXPECT_FALSE(lease(&outside, 1, transfer));
  for (char* block : blocks) process_heap().free(block);
}

TEST_F(ArenaTest, DroppedPagesAreClearedAndStayRegistered) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  const std::uint64_t before = leases().arena().figures().cleared_bytes;
  ASSERT_EQ(advise(block, 2 * kMiB, MADV_DONTNEED), 0);
  EXPECT_TRUE(is_filled(block, 2 * kMiB, 0));
  EXPECT_EQ(block[2 * kMiB], 7);
  EXPECT_TRUE(serves(block, 4 * kMiB));
  EXPECT_EQ(registrations(), 1u);
  EXPECT_EQ(leases().arena().figures().cleared_bytes - before, 2 * kMiB);
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
    const ArenaFigures figures = leases().arena().figures();
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
  leases().release(*this_thread(), held);
  wait_until([] { return registered() == 0; });
  EXPECT_EQ(leases().arena().figures().doomed, 1u);
  process_heap().free(block);
  process_heap().free(other);
}

TEST_F(ArenaTest, MemoryWithoutRightsLeavesItsSegmentRegistered) {
  for (const char* device : {"emulated", "pin"}) {
    const auto [block, other] = start_with_two_blocks(device);
    ASSERT_EQ(::mprotect(block, kMiB, PROT_NONE), 0);
    EXPECT_TRUE(serves(other, 4 * kMiB));
    EXPECT_EQ(registrations(), 1u);
    EXPECT_EQ(leases().arena().figures().doomed, 0u);
    // Allocators do this; the pages are others from then on. A second view clears them.
    ASSERT_EQ(advise(block, kMiB, MADV_DONTNEED), 0);
    EXPECT_FALSE(is_readable(block));
    EXPECT_TRUE(test::eventually([&] { return serves(other, 4 * kMiB); }));
    EXPECT_EQ(serves(block, kMiB), kAliased) << "it lacks rights";
    EXPECT_TRUE(serves(block + kMiB, 3 * kMiB));
    EXPECT_EQ(registrations(), kAliased ? 1u : 2u) << "of the rest";
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

/// Shared memory in place of the block's, of the same contents.
int map_shared_over(char* at, std::size_t bytes, char value) {
  const int file = ::memfd_create("arena_test", MFD_CLOEXEC);
  EXPECT_EQ(::ftruncate(file, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0), at);
  std::memset(at, value, bytes);
  return file;
}
bool file_is_filled(int file, std::size_t bytes, char value) {
  std::vector<char> contents(bytes);
  return ::pread(file, contents.data(), bytes, 0) == static_cast<ssize_t>(bytes) &&
         std::all_of(contents.begin(), contents.end(), [&](char c) { return c == value; });
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
  EXPECT_EQ(leases().arena().figures().doomed, 0u);
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
  leases().release(*this_thread(), held);
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

// ---- mappings of the program ----

TEST_F(ArenaTest, MappingsAreServedAndEndInPieces) {
  start();
  char* const mapping = static_cast<char*>(process_heap().map(8 * kMiB));
  ASSERT_NE(mapping, nullptr);
  EXPECT_TRUE(is_filled(mapping, 8 * kMiB, 0));
  std::memset(mapping, 7, 8 * kMiB);
  ASSERT_TRUE(serves(mapping, 8 * kMiB));
  // The program may leave its memory as it likes.
  ASSERT_EQ(::mprotect(mapping + 2 * kMiB, kMiB, PROT_READ), 0);
  EXPECT_TRUE(process_heap().has_mapping(Range::of(mapping + kMiB, 2 * kMiB)));
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping + kMiB, 2 * kMiB)));
  EXPECT_FALSE(process_heap().has_mapping(Range::of(mapping + kMiB, 2 * kMiB)));
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 3 * kMiB))) << "some of it for the second time";
  EXPECT_TRUE(is_filled(mapping + 3 * kMiB, 5 * kMiB, 7));
  EXPECT_TRUE(serves(mapping + 3 * kMiB, 5 * kMiB));
  char* const again = static_cast<char*>(process_heap().map(2 * kMiB));
  EXPECT_EQ(again, mapping + kMiB) << "the lowest addresses";
  EXPECT_TRUE(is_filled(again, 2 * kMiB, 0));
  std::memset(again, 8, 2 * kMiB);
  EXPECT_TRUE(serves(again, 2 * kMiB));
  EXPECT_EQ(registrations(), 1u) << "it has stayed registered";
  char* const block = take(kMiB);
  EXPECT_FALSE(process_heap().unmap(Range::of(block, kMiB))) << "a block of malloc";
  process_heap().free(block);
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 8 * kMiB)));
}

// Calls of munmap by libc itself, or by syscall(), do this.
TEST_F(ArenaTest, MappingsThatEndPastTheHeapGiveTheirAddressesBack) {
  for (const bool served_before : {false, true}) {
    start();
    char* const mapping = static_cast<char*>(process_heap().map(8 * kMiB));
    std::memset(mapping, 7, 8 * kMiB);
    if (served_before) {
      ASSERT_TRUE(serves(mapping, 8 * kMiB));
    }
    char* const block = take(kMiB);
    ASSERT_EQ(::munmap(mapping, 8 * kMiB), 0);
    if (served_before) {
      ASSERT_EQ(::munmap(block, page_size()), 0);
      EXPECT_EQ(block, mapping + 8 * kMiB) << "beside it, of malloc";
    }
    EXPECT_FALSE(is_readable(mapping));
    char* const again = static_cast<char*>(process_heap().map(8 * kMiB));
    EXPECT_EQ(again, mapping);
    EXPECT_TRUE(is_filled(again, 8 * kMiB, 0));
    EXPECT_TRUE(serves(again, 8 * kMiB));
    EXPECT_EQ(registrations(), 1u);
    EXPECT_TRUE(process_heap().unmap(Range::of(again, 8 * kMiB)));
    process_heap().free(block);
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, MappingsOfUnregisteredSegmentsGoBackToTheKernel) {
  start();
  char* const mapping = static_cast<char*>(process_heap().map(4 * kMiB));
  std::memset(mapping, 7, 4 * kMiB);
  const int file = map_shared_over(mapping, kMiB, 5);
  ASSERT_EQ(::mprotect(mapping + 2 * kMiB, kMiB, PROT_NONE), 0);
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 4 * kMiB)));
  EXPECT_TRUE(is_filled(mapping, 4 * kMiB, 0)) << "fresh memory";
  char* const again = static_cast<char*>(process_heap().map(4 * kMiB));
  EXPECT_EQ(again, mapping);
  std::memset(again, 8, 4 * kMiB);
  EXPECT_TRUE(serves(again, 4 * kMiB)) << "nothing is left of earlier changes";
  EXPECT_TRUE(file_is_filled(file, kMiB, 5));
  ::close(file);
  EXPECT_TRUE(process_heap().unmap(Range::of(again, 4 * kMiB)));
}

// The program has them from a mapping that it ended.
TEST_F(ArenaTest, AMappingOverFreeMemoryIsTheProgramsUntilItEnds) {
  for (const bool registered : {false, true}) {
    start();
    char* const mapping = static_cast<char*>(process_heap().map(8 * kMiB));
    if (registered) {
      ASSERT_TRUE(serves(mapping, 8 * kMiB));
    }
    ASSERT_TRUE(process_heap().unmap(Range::of(mapping, 8 * kMiB)));
    char* const over = mapping + kMiB;
    const int file = map_shared_over(over, kMiB, 5);
    char* const below = static_cast<char*>(process_heap().map(kMiB));
    EXPECT_EQ(below, mapping) << "free, as before";
    char* const block = take(7 * kMiB);
    EXPECT_FALSE(Range::of(block, 7 * kMiB).overlaps(Range::of(over, kMiB)));
    std::memset(below, 9, kMiB);
    std::memset(block, 9, 7 * kMiB);
    EXPECT_FALSE(process_heap().resize(below, 2 * kMiB)) << "the program's memory is in the way";
    EXPECT_TRUE(process_heap().unmap(Range::of(below, kMiB)));
    process_heap().free(block);
    process_heap().relieve();
    EXPECT_TRUE(is_filled(over, kMiB, 5));
    over[0] = 6;
    char first = 0;
    EXPECT_TRUE(::pread(file, &first, 1, 0) == 1 && first == 6) << "still the file";
    EXPECT_TRUE(process_heap().unmap(Range::of(over, kMiB)));
    char* const again = static_cast<char*>(process_heap().map(31 * kMiB));
    EXPECT_EQ(again, mapping);
    EXPECT_TRUE(is_filled(again, 31 * kMiB, 0));
    std::memset(again, 9, 31 * kMiB);
    EXPECT_TRUE(::pread(file, &first, 1, 0) == 1 && first == 6);
    ::close(file);
    EXPECT_TRUE(process_heap().unmap(Range::of(again, 31 * kMiB)));
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, AMappingOverFreeAddressesIsTheProgramsUntilItEnds) {
  start();
  char* const mapping = static_cast<char*>(process_heap().map(8 * kMiB));
  ASSERT_TRUE(process_heap().unmap(Range::of(mapping, 8 * kMiB)));
  process_heap().relieve();
  ASSERT_EQ(process_arena().figures().segments, 0u);
  const int file = map_shared_over(mapping, kMiB, 5);
  char* const other = static_cast<char*>(process_heap().map(8 * kMiB));
  ASSERT_NE(other, nullptr);
  EXPECT_NE(other, mapping);
  std::memset(other, 9, 8 * kMiB);
  EXPECT_TRUE(file_is_filled(file, kMiB, 5));
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, kMiB)));
  EXPECT_FALSE(is_readable(mapping));
  EXPECT_TRUE(process_heap().unmap(Range::of(other, 8 * kMiB)));
  process_heap().relieve();
  char* const again = static_cast<char*>(process_heap().map(8 * kMiB));
  EXPECT_EQ(again, mapping);
  EXPECT_TRUE(is_filled(again, 8 * kMiB, 0));
  EXPECT_TRUE(file_is_filled(file, kMiB, 5));
  ::close(file);
  EXPECT_TRUE(process_heap().unmap(Range::of(again, 8 * kMiB)));
}

/// The marks that a program leaves on memory, by the names in /proc/self/smaps: left out of dumps and of
/// children, wiped for them, locked, merged with others.
std::string marks_at(const char* at) {
  std::ifstream smaps("/proc/self/smaps");
  std::string marks;
  bool there = false;
  for (std::string line; std::getline(smaps, line);) {
    Range mapping;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &mapping.begin, &mapping.end) == 2)
      there = mapping.contains(Range::of(at, 1));
    if (!there || !line.starts_with("VmFlags:")) continue;
    for (const char* mark : {"dd", "dc", "wf", "lo", "mg"})
      if (line.find(std::string(" ") + mark) != line.npos) marks += mark;
  }
  return marks;
}
int memory_policy_at(const char* at) {
  constexpr int kOfAddress = 2;  // MPOL_F_ADDR
  int policy = 0;
  ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, at, kOfAddress);
  return policy;
}
/// Leaves memory as a program may. What the kernel lacks goes unmarked. The calls are direct, as sanitizers drop
/// locks.
void leave_marks(char* at, std::size_t bytes) {
  ASSERT_EQ(advise(at, bytes, MADV_DONTDUMP), 0);
  ASSERT_EQ(advise(at, bytes, MADV_DONTFORK), 0);
  advise(at, bytes, MADV_MERGEABLE);
  ASSERT_EQ(::syscall(SYS_mlock, at, page_size()), 0);
  constexpr int kBind = 2;  // MPOL_BIND
  const unsigned long first_node = 1;
  ::syscall(SYS_mbind, at, bytes, kBind, &first_node, 8 * sizeof first_node, 0);
}

TEST_F(ArenaTest, AMappingBeginsAsTheKernelsWould) {
  for (const bool registered : {false, true}) {
    start();
    char* const mapping = static_cast<char*>(process_heap().map(4 * kMiB));
    if (registered) {
      ASSERT_TRUE(serves(mapping, 4 * kMiB));
    }
    const std::string plain = marks_at(mapping);
    EXPECT_EQ(plain, registered ? "dc" : kUnmarked) << "registered memory is hidden from children";
    ASSERT_NO_FATAL_FAILURE(leave_marks(mapping, kMiB));
    EXPECT_EQ(marks_at(mapping).find("dddclo"), 0u);
    EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 4 * kMiB)));
    EXPECT_EQ(marks_at(mapping), plain) << "at once: locked memory counts against a limit";
    char* const again = static_cast<char*>(process_heap().map(4 * kMiB));
    EXPECT_EQ(again, mapping);
    EXPECT_EQ(marks_at(again), plain);
    EXPECT_EQ(memory_policy_at(again), 0);
    EXPECT_TRUE(process_heap().unmap(Range::of(again, 4 * kMiB)));
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, UnmappedMemoryOfABlockBeginsAsTheKernelsWould) {
  start();
  char* const block = take(4 * kMiB);
  ASSERT_NO_FATAL_FAILURE(leave_marks(block, kMiB));
  ASSERT_EQ(::munmap(block, kMiB), 0);
  EXPECT_EQ(marks_at(block).find("lo"), std::string::npos);
  process_heap().free(block);
  char* const again = take(4 * kMiB);
  EXPECT_EQ(again, block);
  EXPECT_EQ(marks_at(again), kUnmarked);
  EXPECT_EQ(memory_policy_at(again), 0);
  process_heap().free(again);
}

TEST_F(ArenaTest, MemoryThatLocksByDefaultStaysLocked) {
  start();
  char* const mapping = static_cast<char*>(process_heap().map(4 * kMiB));
  ASSERT_TRUE(serves(mapping, 4 * kMiB));
  ASSERT_EQ(::syscall(SYS_mlock, mapping, page_size()), 0);
  process_arena().changes().note_locks_future(true);
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 4 * kMiB)));
  process_arena().changes().note_locks_future(false);
  EXPECT_EQ(marks_at(mapping), "dclo");
  ASSERT_EQ(::syscall(SYS_munlock, mapping, page_size()), 0);
}

TEST_F(ArenaTest, MemoryThatIsWipedForChildrenIsServedNoMore) {
  const auto [block, other] = start_with_two_blocks("emulated");
  if (kAliased) {
    EXPECT_EQ(advise(block, kMiB, MADV_WIPEONFORK), -1) << "the kernel cannot, as with all shared memory";
    EXPECT_EQ(errno, EINVAL);
    test::in_child([block = block] { EXPECT_TRUE(is_filled(block, 4 * kMiB, 7)); });
    process_heap().free(block);
    return process_heap().free(other);
  }
  ASSERT_EQ(advise(block, kMiB, MADV_WIPEONFORK), 0);
  test::in_child([&] {
    EXPECT_TRUE(is_filled(block, kMiB, 0));
    EXPECT_TRUE(is_filled(block + kMiB, 3 * kMiB, 7));
  });
  EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
  EXPECT_TRUE(test::eventually([&] { return serves(other, 4 * kMiB); }));
  EXPECT_FALSE(serves(block, kMiB));
  EXPECT_TRUE(acquires(block, kMiB)) << "the ordinary way";
  process_heap().free(block);
  char* const again = take(4 * kMiB, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_filled(again, 4 * kMiB, 0));
  std::memset(again, 8, 4 * kMiB);
  test::in_child([&] { EXPECT_TRUE(is_filled(again, 4 * kMiB, 8)); });
  process_heap().free(again);
  process_heap().free(other);
}

void share(Range memory, bool shared) {
  ASSERT_EQ(
      advise(reinterpret_cast<char*>(memory.begin), memory.bytes(), shared ? MADV_DOFORK : MADV_DONTFORK), 0);
}

TEST_F(ArenaTest, MemoryThatTheProgramKeepsFromChildrenStaysSo) {
  for (const bool served_before : {false, true}) {
    start();
    char* const block = take(4 * kMiB);
    const Range hidden = Range::of(block + kMiB, kMiB);
    std::memset(block, 7, 4 * kMiB);
    if (served_before) {
      ASSERT_TRUE(serves(block, 4 * kMiB));
    }
    ASSERT_NO_FATAL_FAILURE(share(hidden, false));
    EXPECT_TRUE(serves(block, 4 * kMiB)) << "children alone lack it";
    leases().leave_arena(0);
    EXPECT_TRUE(test::eventually([] { return registered() == 0; }));
    EXPECT_TRUE(test::eventually([&] { return marks_at(block) == kUnmarked; }));
    EXPECT_EQ(marks_at(block + kMiB), "dc") << "its mark outlives the registration";
    ASSERT_NO_FATAL_FAILURE(share(hidden, true));
    EXPECT_EQ(marks_at(block + kMiB), kUnmarked);
    test::in_child([&] { EXPECT_TRUE(is_filled(block, 4 * kMiB, 7)); });
    process_heap().free(block);
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, AChildLacksWhatTheProgramKeepsFromIt) {
  const auto [block, other] = start_with_two_blocks("pin");
  const Range hidden = Range::of(block + kMiB, kMiB);
  Transfer held;  // so that the segment stays registered
  ASSERT_TRUE(lease(other, 4 * kMiB, held));
  ASSERT_NO_FATAL_FAILURE(share(hidden, false));
  test::in_child([block = block] {
    EXPECT_TRUE(is_filled(block, kMiB, 7));
    EXPECT_FALSE(is_readable(block + kMiB));
    EXPECT_TRUE(is_filled(block + 2 * kMiB, 2 * kMiB, 7));
    process_heap().free(block);
    char* const again = take(4 * kMiB, true);
    EXPECT_EQ(again, block);
    EXPECT_TRUE(is_filled(again, 4 * kMiB, 0)) << "its hole ended with the block";
  });
  // Shown to children while the segment stays registered.
  ASSERT_NO_FATAL_FAILURE(share(hidden, true));
  test::in_child([block = block] { EXPECT_TRUE(is_filled(block, 4 * kMiB, 7)); });
  EXPECT_EQ(marks_at(block + kMiB), "dc") << "hidden again for the sake of time";
  ASSERT_NO_FATAL_FAILURE(share(hidden, false));
  process_heap().free(block);
  char* const again = take(4 * kMiB);
  EXPECT_EQ(again, block);
  std::memset(again, 8, 4 * kMiB);
  test::in_child([&] { EXPECT_TRUE(is_filled(again, 4 * kMiB, 8)) << "a new block is shared"; });
  EXPECT_EQ(registrations(), 1u);
  leases().release(*this_thread(), held);
  process_heap().free(again);
  process_heap().free(other);
}

// Calls of mmap with MAP_FIXED_NOREPLACE do this (intercept/malloc/mappings.cpp).
TEST_F(ArenaTest, FreeMemoryMakesWayForAMappingOfTheProgram) {
  for (const bool registered : {false, true}) {
    start();
    char* const mapping = static_cast<char*>(process_heap().map(8 * kMiB));
    const Range wanted = Range::of(mapping + kMiB, kMiB);
    if (registered) {
      ASSERT_TRUE(serves(mapping, 8 * kMiB));
    }
    EXPECT_FALSE(process_heap().lay_over_free(wanted)) << "a mapping is there";
    ASSERT_TRUE(process_heap().unmap(Range::of(mapping, 8 * kMiB)));
    ASSERT_TRUE(process_heap().lay_over_free(wanted));
    const int file = map_shared_over(mapping + kMiB, kMiB, 5);
    EXPECT_FALSE(process_heap().lay_over_free(wanted)) << "another one is";
    char* const block = take(8 * kMiB);
    std::memset(block, 9, 8 * kMiB);
    EXPECT_FALSE(process_heap().lay_over_free(Range::of(block, kMiB))) << "a block is";
    EXPECT_TRUE(file_is_filled(file, kMiB, 5));
    ::close(file);
    process_heap().free(block);
    ASSERT_TRUE(process_heap().unmap(wanted));
    Engine::stop();
    process_heap().relieve();
    ASSERT_EQ(process_arena().figures().segments, 0u) << "nothing is lost";
    // Addresses without a segment. The program has not used its chance.
    ASSERT_TRUE(process_heap().lay_over_free(wanted));
    EXPECT_FALSE(process_heap().lay_over_free(wanted));
    ASSERT_TRUE(process_heap().unmap(wanted));
    ASSERT_TRUE(process_heap().lay_over_free(wanted));
    ASSERT_TRUE(process_heap().unmap(wanted));
  }
}

TEST_F(ArenaTest, ASegmentUnderAMappingGoesWithIt) {
  start();
  char* const block = take(30 * kMiB);
  Transfer held;
  ASSERT_TRUE(lease(block, 30 * kMiB, held));
  process_heap().free(block);
  ASSERT_TRUE(process_heap().relieve());
  const int file = map_shared_over(block, kMiB, 5);
  leases().release(*this_thread(), held);
  EXPECT_TRUE(test::eventually([] { return registered() == 0; }));
  leases().settle_arena();
  EXPECT_TRUE(file_is_filled(file, kMiB, 5));
  ASSERT_TRUE(process_heap().unmap(Range::of(block, kMiB)));
  EXPECT_TRUE(test::eventually([] { return process_arena().figures().segments == 0; }));
  char* const again = take(30 * kMiB, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_filled(again, 30 * kMiB, 0));
  EXPECT_TRUE(file_is_filled(file, kMiB, 5));
  ::close(file);
  process_heap().free(again);
}

/// Runs code in the middle of the next change of the memory that it watches.
class Meanwhile final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    if (change.range.overlaps(watched) && !ran.exchange(true)) run();
    return Answer::proceed;
  }
  /// The code runs while `change` does.
  void during(Range memory, std::function<void()> code, const std::function<void()>& change) {
    watched = memory;
    run = std::move(code);
    ran = false;
    ASSERT_FALSE(memory_events::add(*this));
    change();
    memory_events::remove(*this);
    EXPECT_TRUE(ran);
  }

 private:
  Range watched;
  std::function<void()> run;
  std::atomic<bool> ran{true};
};

TEST_F(ArenaTest, ASegmentGoesBackBesideAMapping) {
  static Meanwhile meanwhile;
  start();
  char* const mapping = static_cast<char*>(process_heap().map(8 * kMiB));
  const Range all = Range::of(mapping, 8 * kMiB);
  ASSERT_TRUE(process_heap().unmap(all));
  const auto relieve = [] { process_heap().relieve(); };
  // The heap learns of this call in its hook alone, and refuses.
  void* mapped = nullptr;
  const auto map_by_hook = [&] {
    mapped = ::mmap(mapping, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  };
  ASSERT_NO_FATAL_FAILURE(meanwhile.during(
      all, [&] { std::thread(map_by_hook).join(); }, relieve));
  EXPECT_EQ(mapped, MAP_FAILED);
  EXPECT_EQ(process_arena().figures().segments, 0u);
  // Otherwise it waits.
  ASSERT_EQ(process_heap().map(8 * kMiB), mapping);
  ASSERT_TRUE(process_heap().unmap(all));
  std::thread thread;
  int file = -1;
  const auto map_in_time = [&] {
    EXPECT_TRUE(process_heap().lay_over(Range::of(mapping, kMiB)));
    file = map_shared_over(mapping, kMiB, 5);
  };
  ASSERT_NO_FATAL_FAILURE(meanwhile.during(
      all, [&] { thread = std::thread(map_in_time); }, relieve));
  thread.join();
  EXPECT_TRUE(is_filled(mapping, kMiB, 5));
  mapping[0] = 6;
  char first = 0;
  EXPECT_TRUE(::pread(file, &first, 1, 0) == 1 && first == 6) << "the file's memory";
  ::close(file);
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, kMiB)));
  EXPECT_EQ(process_heap().map(8 * kMiB), mapping) << "the addresses are free again";
  EXPECT_TRUE(process_heap().unmap(all));
}

TEST_F(ArenaTest, AMappingEndsBesideAnAllocation) {
  static Meanwhile meanwhile;
  start();
  char* const mapping = static_cast<char*>(process_heap().map(4 * kMiB));
  ASSERT_TRUE(process_heap().unmap(Range::of(mapping, 4 * kMiB)));
  ::close(map_shared_over(mapping, 2 * kMiB, 5));
  // In pieces, so that the rest is the program's still.
  for (char* const part : {mapping, mapping + kMiB}) {
    char* block = nullptr;
    ASSERT_NO_FATAL_FAILURE(meanwhile.during(
        Range::of(part, kMiB), [&] { block = take(kMiB); },
        [&] { EXPECT_TRUE(process_heap().unmap(Range::of(part, kMiB))); }));
    EXPECT_NE(block, nullptr);
    process_heap().free(block);
  }
  process_heap().relieve();
  EXPECT_EQ(process_arena().figures().segments, 0u) << "all addresses are free again";
}

// The firehose does this while a peer holds the memory.
class Refusing final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    return refuses && change.alternative == Answer::refuse ? Answer::refuse : Answer::proceed;
  }
  std::atomic<bool> refuses{false};
};

TEST_F(ArenaTest, MemoryThatTheKernelRefusesStaysOutOfUse) {
  // Some of it for good: in a process of its own.
  test::in_child([this] {
    static Refusing sink;
    start();
    ASSERT_FALSE(memory_events::add(sink));
    for (const bool mapped : {false, true}) {
      char* const block = mapped ? static_cast<char*>(process_heap().map(4 * kMiB)) : take(4 * kMiB);
      const int file = map_shared_over(block, kMiB, 5);
      sink.refuses = true;
      if (mapped)
        process_heap().unmap(Range::of(block, 4 * kMiB));
      else
        process_heap().free(block);
      sink.refuses = false;
      char* const other = take(4 * kMiB, true);
      std::memset(other, 9, 4 * kMiB);
      EXPECT_FALSE(Range::of(block, kMiB).overlaps(Range::of(other, 4 * kMiB)));
      EXPECT_TRUE(file_is_filled(file, kMiB, 5));
      ::close(file);
      process_heap().free(other);
      if (!mapped) {
        EXPECT_TRUE(process_heap().unmap(Range::of(block, 4 * kMiB))) << "now";
      }
    }
    memory_events::remove(sink);
    Engine::stop();
  });
}

// ---- peers ----

TEST_F(ArenaTest, ARequestForPeersClosesASegmentWithLocalRights) {
  start();
  borrow_device(true);
  char* const block = take(4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  Transfer transfer;
  EXPECT_FALSE(lease(block, kMiB, transfer, Access::remote_write));
  ASSERT_TRUE(leases().acquire(*this_thread(), domain_, {}, Range::of(block, kMiB), Access::remote_write,
                               transfer, Refusal::report));
  leases().release(*this_thread(), transfer);
  EXPECT_FALSE(serves(block, 4 * kMiB)) << "a key of its own, and no segment around it";
  process_heap().free(block);
}

TEST_F(ArenaTest, SegmentsServePeersWhereTheUserAllowsIt) {
  start(0, "emulated", true);
  test::FakeDevice& device = borrow_device(true);
  char* const block = take(4 * kMiB);
  for (const Access access : {Access::read, Access::write, Access::remote_read, Access::all}) {
    Transfer transfer;
    ASSERT_TRUE(lease(block, kMiB, transfer, access));
    EXPECT_TRUE(device.serves(transfer.region()->key, Range::of(block, 4 * kMiB), Access::all));
    leases().release(*this_thread(), transfer);
  }
  PeerHold hold;
  EXPECT_FALSE(
      leases().begin_hold(*this_thread(), domain_, Range::of(block, kMiB).to_pages(), Access::all, hold));
  leases().end_hold(*this_thread(), hold);
  EXPECT_EQ(device.calls(), 1u);
  EXPECT_TRUE(serves(block, 4 * kMiB));
  process_heap().free(block);
}

// ---- the C API ----

TEST_F(ArenaTest, TryAcquireIsServedOnceTheSegmentIsRegistered) {
  start();
  pinion_domain* domain = nullptr;
  ASSERT_EQ(pinion_domain_open("emulated", "none", &domain), 0) << pinion_last_error();
  char* const block = take(4 * kMiB);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain, block, kMiB, PINION_ACCESS_WRITE, &lease), EAGAIN);
  ASSERT_EQ(pinion_acquire(domain, block, kMiB, PINION_ACCESS_WRITE, &lease), 0) << pinion_last_error();
  EXPECT_EQ(pinion_release(&lease), 0);
  // A thread without requests before, too.
  std::thread([&] {
    ASSERT_EQ(pinion_try_acquire(domain, block + kMiB, kMiB, PINION_ACCESS_WRITE, &lease), 0);
    pinion_keys keys{};
    keys.size = sizeof keys;
    EXPECT_EQ(pinion_lease_keys(&lease, &keys), 0);
    EXPECT_LE(keys.address, reinterpret_cast<Address>(block));
    EXPECT_EQ(pinion_release(&lease), 0);
  }).join();
  EXPECT_EQ(leases().arena().figures().served, 2u);
  EXPECT_EQ(pinion_domain_close(domain), 0) << pinion_last_error();
  process_heap().free(block);
}

// ---- refusals ----

TEST_F(ArenaTest, ARefusedSegmentIsTriedAgain) {
  start();
  std::atomic<bool> refuses{true};
  test::FakeDevice& device = borrow_device();
  device.refuse = [&](Range pages, Access) { return refuses && pages.bytes() > 4 * kMiB ? ENOMEM : 0; };
  char* const block = take(4 * kMiB);
  EXPECT_FALSE(serves(block, 4 * kMiB));
  EXPECT_TRUE(acquires(block, 4 * kMiB)) << "the ordinary way";
  EXPECT_GE(leases().arena().figures().refused, 1u);
  refuses = false;
  EXPECT_TRUE(test::eventually([&] { return serves(block, 4 * kMiB); }));
  // Refused once it has been registered, and let go.
  refuses = true;
  leases().leave_arena(domain_);
  EXPECT_TRUE(test::eventually([&] { return device.live() == 0; }));
  const std::uint64_t before = leases().arena().figures().refused;
  EXPECT_TRUE(test::eventually([&] {
    EXPECT_FALSE(serves(block, 4 * kMiB));
    return leases().arena().figures().refused > before;
  }));
  EXPECT_TRUE(acquires(block, 4 * kMiB));
  process_heap().free(block);
}

// RLIMIT_MEMLOCK as ordinary users have it.
TEST_F(ArenaTest, AnOrdinaryUserGetsOneLine) {
  if (kSanitized || ::geteuid() != 0) GTEST_SKIP() << "only root can become a user with a limit";
  test::in_child([this] {
    const rlimit limit{8 * kMiB, 8 * kMiB};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    ASSERT_TRUE(::setgid(65534) == 0 && ::setuid(65534) == 0);
    start(0, "pin");
    testing::internal::CaptureStderr();
    char* const block = take(4 * kMiB);
    for (int i = 0; i < 100; ++i) {
      EXPECT_FALSE(serves(block, kMiB));
      EXPECT_TRUE(acquires(block, kMiB));
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(said.starts_with("pinion: a segment of the arena stays unregistered")) << said;
    EXPECT_EQ(said.find("pinion: a", 1), said.npos) << said;
    Engine::stop();
  });
}

TEST_F(ArenaTest, UnderALimitRequestsGoTheOrdinaryWay) {
  start(8 * kMiB);
  char* const block = take(4 * kMiB);
  EXPECT_FALSE(serves(block, 4 * kMiB));
  Transfer transfer;
  EXPECT_TRUE(acquire(block, 4 * kMiB, transfer));
  EXPECT_LE(registered(), 8 * kMiB);
  leases().release(*this_thread(), transfer);
  EXPECT_EQ(leases().arena().figures().refused, 1u);
  process_heap().free(block);
}

TEST_F(ArenaTest, ASegmentWithoutLeasesMakesRoomForOthers) {
  start(33 * kMiB);
  char* const block = take(4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  void* const other = ::mmap(nullptr, 8 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_TRUE(acquires(static_cast<char*>(other), 8 * kMiB));
  EXPECT_EQ(leases().arena().figures().let_go, 1u);
  ::munmap(other, 8 * kMiB);
  process_heap().free(block);
}

// ---- forks ----

TEST_F(ArenaTest, AChildHasTheBlocksOfRegisteredSegments) {
  for (const bool leased : {false, true}) {
    start();
    char* const block = take(4 * kMiB);
    std::memset(block, 7, 4 * kMiB);
    Transfer held;
    ASSERT_TRUE(lease(block, 4 * kMiB, held));
    if (!leased) leases().release(*this_thread(), held);
    test::in_child([&] {
      EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
      std::memset(block, 8, 4 * kMiB);
      const char* const own = take(kMiB, true);
      ASSERT_NE(own, nullptr);
      EXPECT_TRUE(is_filled(own, kMiB, 0));
      EXPECT_TRUE(is_filled(block, 4 * kMiB, 8));
    });
    EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
    // The kernel makes the child's copy of a segment that nobody uses, on write.
    EXPECT_EQ(leases().arena().figures().let_go, leased ? 0u : 1u);
    EXPECT_EQ(registered() != 0, leased);
    EXPECT_TRUE(serves(block, 4 * kMiB));
    EXPECT_EQ(registrations(), leased ? 1u : 2u);
    if (leased) leases().release(*this_thread(), held);
    process_heap().free(block);
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaTest, AChildHasTheRightsOfItsParent) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  Transfer held;  // so that the segment stays hidden, though its memory changes
  ASSERT_TRUE(lease(block, 4 * kMiB, held));
  ASSERT_EQ(::mprotect(block + kMiB, kMiB, PROT_NONE), 0);
  ASSERT_EQ(::mprotect(block + 2 * kMiB, kMiB, PROT_READ), 0);
  test::in_child([&] {
    EXPECT_FALSE(is_readable(block + kMiB));
    EXPECT_TRUE(is_filled(block + 2 * kMiB, kMiB, 7));
    EXPECT_FALSE(is_writable(block + 2 * kMiB));
    EXPECT_TRUE(is_writable(block));
    ASSERT_EQ(::mprotect(block, 4 * kMiB, PROT_READ | PROT_WRITE), 0);
    EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
    std::memset(block, 8, 4 * kMiB);
  });
  EXPECT_FALSE(is_readable(block + kMiB));
  leases().release(*this_thread(), held);
  process_heap().free(block);
  char* const again = take(4 * kMiB);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_writable(again + kMiB)) << "freed without rights";
  process_heap().free(again);
}

// Calls of clone and _Fork are met like this (intercept/malloc/mappings.cpp).
TEST_F(ArenaTest, AChildWithoutHandlersHasTheBlocks) {
  const auto [block, other] = start_with_two_blocks("pin");
  Transfer held;
  ASSERT_TRUE(lease(other, 4 * kMiB, held));
  EXPECT_EQ(marks_at(block), "dc");
  ASSERT_TRUE(process_heap().before_other_child());
  const long child = ::syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
  if (child == 0) {
    process_heap().after_fork_in_child();
    ::_exit(block[0] == 7 && block[4 * kMiB - 1] == 7 ? 0 : 1);
  }
  process_heap().after_fork_in_parent();
  ASSERT_GE(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(static_cast<pid_t>(child), &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(serves(other, 4 * kMiB));
  test::in_child([block = block] { EXPECT_TRUE(is_filled(block, 4 * kMiB, 7)); });
  EXPECT_EQ(marks_at(block), "dc") << "hidden again";
  EXPECT_EQ(registrations(), 1u);
  leases().release(*this_thread(), held);
  process_heap().free(block);
  process_heap().free(other);
}

/// Coroutines have such stacks.
TEST_F(ArenaTest, AThreadOnAStackInARegisteredSegmentForks) {
  if (kSanitized) GTEST_SKIP() << "sanitizers know stacks that they have seen begin";
  if (kAliased) GTEST_SKIP() << "the child would share the stack, so it has none";
  const auto [block, other] = start_with_two_blocks("pin");
  Transfer held;
  ASSERT_TRUE(lease(other, 4 * kMiB, held));
  char* const stack = take(kMiB);
  static int status = -1;
  static char* contents = nullptr;
  static ucontext_t back, on_stack;
  contents = block;
  ASSERT_EQ(::getcontext(&on_stack), 0);
  on_stack.uc_stack.ss_sp = stack;
  on_stack.uc_stack.ss_size = kMiB;
  on_stack.uc_link = &back;
  ::makecontext(
      &on_stack,
      [] {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(is_filled(contents, 4 * kMiB, 7) ? 0 : 1);
        ::waitpid(child, &status, 0);
      },
      0);
  ASSERT_EQ(::swapcontext(&back, &on_stack), 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(marks_at(block), "dc") << "hidden again";
  EXPECT_TRUE(serves(other, 4 * kMiB));
  EXPECT_EQ(registrations(), 1u);
  leases().release(*this_thread(), held);
  for (char* const one : {block, other, stack}) process_heap().free(one);
}

TEST_F(ArenaTest, AChildsSegmentsCloseBesideLeasesOfTheParent) {
  if (kSanitized) GTEST_SKIP() << "ThreadSanitizer refuses threads in a child";
  start();
  char* const block = take(4 * kMiB);
  Transfer held;
  ASSERT_TRUE(lease(block, 4 * kMiB, held));
  test::in_child([&] {
    start();
    EXPECT_TRUE(serves(block, 4 * kMiB));
    EXPECT_NE(registered(), 0u);
    leases().leave_arena(0);
    EXPECT_TRUE(test::eventually([] { return registered() == 0; }));
    Engine::stop();
  });
  leases().release(*this_thread(), held);
  process_heap().free(block);
}

TEST_F(ArenaTest, ForksWhileThreadsAllocateAndLease) {
  start();
  char* const kept = take(kMiB);
  std::memset(kept, 7, kMiB);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!done) {
        char* const block = take(96 << 10);
        std::memset(block, 5, 96 << 10);
        Transfer transfer;
        if (lease(block, 96 << 10, transfer)) leases().release(*this_thread(), transfer);
        EXPECT_TRUE(is_filled(block, 96 << 10, 5));
        process_heap().free(block);
      }
    });
  for (int i = 0; i < 5; ++i) {
    Transfer transfer;
    EXPECT_TRUE(test::eventually([&] { return lease(kept, kMiB, transfer); }));
    test::in_child([&] {
      EXPECT_TRUE(is_filled(kept, kMiB, 7));
      char* const own = take(200 << 10);
      ASSERT_NE(own, nullptr);
      process_heap().free(own);
    });
    leases().release(*this_thread(), transfer);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  process_heap().free(kept);
}

// ---- threads ----

TEST_F(ArenaTest, ThreadsReturnEachOthersLeasesWhileSegmentsClose) {
  start();
  char* const block = take(8 * kMiB);
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      char* const own = block + static_cast<std::size_t>(i) * kMiB;
      while (!done) {
        Transfer transfer;
        if (!lease(own, kMiB, transfer)) continue;
        std::thread([&] { leases().release(*this_thread(), transfer); }).join();
      }
    });
  for (int i = 0; i < 100; ++i) {
    leases().leave_arena(0);
    std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  leases().leave_arena(0);
  wait_until([] { return registered() == 0; });
  process_heap().free(block);
}

TEST_F(ArenaTest, ALeaseMayOutliveTheRun) {
  start();
  LeasePath& path = leases();
  char* const block = take(4 * kMiB);
  Transfer transfer;
  ASSERT_TRUE(lease(block, 4 * kMiB, transfer));
  Engine::stop();
  path.release_after_run(transfer);
  start();
  EXPECT_TRUE(serves(block, 4 * kMiB));
  process_heap().free(block);
}

// ---- a kernel that refuses memory ----

/// Limits address space, or private memory, to what the process has now: the kernel refuses more.
class Shortage {
 public:
  explicit Shortage(int resource) : resource_(resource) {
    ::getrlimit(resource_, &before_);
    rlimit least = before_;
    least.rlim_cur =
        std::min<rlim_t>(before_.rlim_cur, bytes_of(resource == RLIMIT_AS ? "VmSize:" : "VmData:"));
    ::setrlimit(resource_, &least);
  }
  ~Shortage() { ::setrlimit(resource_, &before_); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

 private:
  static rlim_t bytes_of(const std::string& name) {
    std::ifstream status("/proc/self/status");
    rlim_t kilobytes = 0;
    for (std::string word; status >> word;)
      if (word == name) status >> kilobytes;
    return kilobytes << 10;
  }
  const int resource_;
  rlimit before_{};
};

TEST_F(ArenaTest, MemoryThatTheKernelRefusesComesLater) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need memory of their own";
  start();
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    ASSERT_EQ(process_arena().figures().segments, 0u);
    const auto take_short = [&] {
      const Shortage shortage(resource);
      return std::pair{take(20 * kMiB), process_heap().map(20 * kMiB)};
    };
    const auto [block, mapping] = take_short();
    EXPECT_EQ(block, nullptr) << resource;
    EXPECT_EQ(mapping, nullptr) << resource;
    EXPECT_EQ(process_arena().figures().segments, 0u);
    char* const later = take(20 * kMiB, true);
    ASSERT_NE(later, nullptr);
    EXPECT_TRUE(is_filled(later, 20 * kMiB, 0));
    EXPECT_TRUE(serves(later, 20 * kMiB));
    process_heap().free(later);
    leases().leave_arena(0);
    process_heap().relieve();
    EXPECT_TRUE(test::eventually([] { return process_arena().figures().segments == 0; }));
    leases().settle_arena();
  }
}

// ---- two views ----

class AliasedArenaTest : public ArenaTest {
 protected:
  void SetUp() override {
    if (!kAliased) GTEST_SKIP() << "segments have one view";
  }
  static char* view_of(const char* at) {
    return reinterpret_cast<char*>(process_arena().view_of(Range::of(at, 1)).begin);
  }
  /// Checks a child by a system call, whose memory is as the kernel copies it.
  template <class InChild>
  static void in_raw_child(bool prepared, InChild&& in_child) {
    if (prepared) {
      ASSERT_TRUE(process_heap().before_other_child());
    }
    const long child = ::syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) {
      if (prepared) process_heap().after_fork_in_child();
      ::_exit(in_child() ? 0 : 1);
    }
    if (prepared) process_heap().after_fork_in_parent();
    ASSERT_GE(child, 0);
    int status = -1;
    ASSERT_EQ(::waitpid(static_cast<pid_t>(child), &status, 0), child);
    EXPECT_EQ(status, 0);
  }
};

TEST_F(AliasedArenaTest, DevicesRegisterTheSecondView) {
  start();
  test::FakeDevice& device = borrow_device();
  char* const block = take(4 * kMiB);
  char* const other = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  const Range segment = process_arena().devices().at(reinterpret_cast<Address>(block));
  char* const view = view_of(block);
  EXPECT_EQ(device.last_view(), reinterpret_cast<Address>(view_of(reinterpret_cast<char*>(segment.begin))));
  EXPECT_FALSE(process_arena().range().contains(Range::of(view, 1)));
  EXPECT_TRUE(is_filled(view, 4 * kMiB, 7));
  view[5] = 8;
  EXPECT_EQ(block[5], 8);
  view[5] = 7;

  // Changes of the program's view leave the other one as it is.
  ASSERT_EQ(::mprotect(block, kMiB, PROT_NONE), 0);
  ASSERT_EQ(::munmap(block + kMiB, kMiB), 0);
  EXPECT_TRUE(is_filled(view, 4 * kMiB, 7));
  EXPECT_TRUE(serves(other, 4 * kMiB));
  EXPECT_EQ(device.live(), 1u);
  process_heap().free(block);
  char* const again = take(4 * kMiB, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_filled(view, 4 * kMiB, 0)) << "both are the new block's";
  EXPECT_EQ(device.live(), 1u);
  process_heap().free(again);
  process_heap().free(other);
}

TEST_F(AliasedArenaTest, AMappingOverABlockEndsItsServiceUntilItIsGone) {
  const auto [block, other] = start_with_two_blocks("pin");
  ASSERT_EQ(::mmap(block, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            block);
  std::memset(block, 9, kMiB);
  EXPECT_EQ(view_of(block)[0], 7) << "the old contents, which nobody may be sent";
  EXPECT_FALSE(serves(block, kMiB));
  test::in_child([block = block] { EXPECT_TRUE(is_filled(block, kMiB, 9)); });
  process_heap().free(block);
  char* const again = take(4 * kMiB, true);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(is_filled(again, 4 * kMiB, 0));
  again[0] = 5;
  EXPECT_EQ(view_of(again)[0], 5);
  test::in_child([again] { EXPECT_EQ(again[0], 5); });
  EXPECT_TRUE(test::eventually([&] { return serves(again, 4 * kMiB); }));
  process_heap().free(again);
  process_heap().free(other);
}

TEST_F(AliasedArenaTest, ChildrenNeverShareIt) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  for (const bool registered : {false, true}) {
    if (registered) {
      ASSERT_TRUE(serves(block, 4 * kMiB));
    }
    char* const view = view_of(block);
    EXPECT_EQ(marks_at(block).substr(0, 2), "dc");
    const auto writes_its_own = [&] {
      const bool right = is_filled(block, 4 * kMiB, 7) && view_of(block) == nullptr && !is_readable(view);
      std::memset(block, 9, 4 * kMiB);
      return right;
    };
    test::in_child([&] { EXPECT_TRUE(writes_its_own()); });
    EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
    in_raw_child(true, writes_its_own);
    EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
    in_raw_child(false, [&] { return !is_readable(block) && !is_readable(view); });
    ASSERT_EQ(advise(block, kMiB, MADV_DOFORK), 0);
    in_raw_child(false, [&] { return !is_readable(block); });
  }
  process_heap().free(block);
}

TEST_F(AliasedArenaTest, AChildsNewSegmentsAreItsOwn) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  test::in_child([&] {
    process_heap().free(block);
    process_heap().relieve();
    char* const own = take(40 * kMiB, true);
    ASSERT_NE(own, nullptr);
    ASSERT_NE(view_of(own), nullptr);
    std::memset(own, 9, 40 * kMiB);
    EXPECT_TRUE(is_filled(view_of(own), 30 * kMiB, 9));
  });
  EXPECT_TRUE(is_filled(block, 4 * kMiB, 7));
  process_heap().free(block);
}

TEST_F(AliasedArenaTest, MemoryGoesBackToTheKernel) {
  start();
  char* const block = take(4 * kMiB);
  char* const view = view_of(block);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  Transfer held;
  ASSERT_TRUE(lease(block, 4 * kMiB, held));
  std::memset(block, 7, 4 * kMiB);
  process_heap().free(block);
  process_heap().relieve();
  EXPECT_TRUE(is_readable(view)) << "registered";
  leases().release(*this_thread(), held);
  EXPECT_TRUE(test::eventually([&] { return process_arena().figures().segments == 0; }));
  EXPECT_FALSE(is_readable(view));

  char* const mapping = static_cast<char*>(process_heap().map(4 * kMiB));
  char* const kept = static_cast<char*>(process_heap().map(kMiB));
  std::memset(mapping, 7, 4 * kMiB);
  const auto has_memory = [in = view_of(mapping)] {
    unsigned char page = 0;
    EXPECT_EQ(::mincore(in, page_size(), &page), 0);
    return (page & 1) != 0;
  };
  EXPECT_TRUE(has_memory());
  EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 4 * kMiB)));
  EXPECT_FALSE(has_memory());
  EXPECT_TRUE(process_heap().unmap(Range::of(kept, kMiB)));
}

// ---- a model ----

/// Numbers the changes of memory that end a registration, by chunk of the arena.
class ChangeCount final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    if (change.kind != ChangeKind::other) return Answer::proceed;
    const Range arena = process_arena().range();
    const Range common{std::max(arena.begin, change.range.begin), std::min(arena.end, change.range.end)};
    const std::uint64_t now = last_.fetch_add(1) + 1;
    for (Address at = common.begin; at < common.end; at += kChunk) changed_[index(at)].store(now);
    return Answer::proceed;
  }
  std::uint64_t now() const { return last_.load(); }
  /// The latest in the range.
  std::uint64_t of(Range range) const {
    std::uint64_t latest = 0;
    for (Address at = range.begin; at < range.end; at += kChunk)
      latest = std::max(latest, changed_[index(at)].load());
    return std::max(latest, changed_[index(range.end - 1)].load());
  }

 private:
  static std::size_t index(Address at) { return (at - process_arena().range().begin) / kChunk; }

  std::atomic<std::uint64_t> last_{0};
  std::array<std::atomic<std::uint64_t>, 8 * Arena::kGranule / kChunk> changed_{};
};
ChangeCount g_changes;

/// Steps in any order, of one thread. A served request finds its memory registered since the last change
/// of it; blocks keep their contents.
class ArenaModelTest : public ArenaTest, public testing::WithParamInterface<unsigned> {
 protected:
  static constexpr std::uint64_t kLimit = 150 * kMiB;

  void begin() {
    start(GetParam() % 2 == 0 ? 0 : kLimit);
    ASSERT_FALSE(memory_events::add(g_changes));
    device_ = &borrow_device();
    device_->refuse = [this](Range pages, Access) {
      const std::lock_guard lock(mutex_);
      registered_at_[pages.begin] = g_changes.now();
      return refuses_ ? ENOMEM : 0;
    };
  }
  void TearDown() override {
    memory_events::remove(g_changes);
    ArenaTest::TearDown();
  }

  void step() {
    const unsigned choice = random_() % 1000;
    if (choice < 250 || blocks_.empty()) {
      allocate();
    } else if (choice < 460) {
      free_one();
    } else if (choice < 740) {
      lease_part();
    } else if (choice < 960) {
      if (!leases_.empty()) release_one();
    } else if (choice < 975) {
      change(true);
    } else if (choice < 983) {
      change(false);
    } else if (choice < 985) {
      take_away();
    } else if (choice < 990) {
      process_heap().relieve();
    } else if (choice < 993) {
      leases().leave_arena(domain_);
    } else if (choice < 996) {
      leases().settle_arena();
    } else if (choice < 998) {
      // A refused segment is not tried again for a second, which is longer than this takes.
      refuses_ = !refuses_ && leases().arena().figures().served > 0;
    } else {
      test::in_child([this] {
        for (const auto& [at, block] : blocks_) check(at, block);
        const char* const own = take(64 << 10, true);
        EXPECT_TRUE(own == nullptr || is_filled(own, 64 << 10, 0));
      });
    }
    while (blocks_.size() > 60) free_one();
    while (leases_.size() > 40) release_one();
  }
  void end() {
    while (!leases_.empty()) release_one();
    while (!blocks_.empty()) free_one();
    check_file();
    // Memory whose rights the kernel would not give back was set aside.
    EXPECT_TRUE(process_heap().unmap(process_arena().range()));
    process_heap().relieve();
    leases().leave_arena(domain_);
    EXPECT_TRUE(test::eventually([] { return registered() == 0 && process_arena().figures().segments == 0; }))
        << registered() << " bytes in " << process_arena().figures().segments << " segments";
    EXPECT_EQ(device_->live(), 0u);
    if (GetParam() % 2 != 0) {
      EXPECT_LE(device_->peak(), kLimit);
    }
    EXPECT_GT(leases().arena().figures().served, 0u);
  }

 private:
  struct Block {
    std::size_t bytes;
    std::vector<char> pages;  ///< the first byte of each
    bool mapped = false;      ///< by mmap
  };
  struct Lease {
    Transfer transfer;
    Range range;
    RegistrationKey key;
  };

  static char* at_page(char* at, std::size_t page) { return at + page * page_size(); }
  static void check(char* at, const Block& block) {
    for (std::size_t i = 0; i < block.pages.size(); ++i) ASSERT_EQ(*at_page(at, i), block.pages[i]);
  }
  std::map<char*, Block>::iterator some_block() {
    const auto from = blocks_.lower_bound(
        reinterpret_cast<char*>(process_arena().range().begin + random_() % process_arena().range().bytes()));
    return from != blocks_.end() ? from : blocks_.begin();
  }

  void allocate() {
    const std::size_t bytes = (32 << 10) + random_() % (random_() % 20 == 0 ? 20 * kMiB : 500 << 10);
    const bool mapped = random_() % 4 == 0, zeroed = mapped || random_() % 8 == 0;
    char* const at = take_perhaps_short(bytes, mapped, zeroed);
    if (at == nullptr) {
      if (!blocks_.empty()) free_one();
      return;
    }
    if (zeroed) {
      ASSERT_TRUE(is_filled(at, bytes, 0));
    }
    Block block{bytes, std::vector<char>(bytes / page_size()), mapped};
    for (std::size_t i = 0; i < block.pages.size(); ++i)
      *at_page(at, i) = block.pages[i] = static_cast<char>(random_());
    blocks_[at] = std::move(block);
  }
  char* take_perhaps_short(std::size_t bytes, bool mapped, bool zeroed) {
    const auto take_now = [&] {
      return mapped ? static_cast<char*>(process_heap().map(bytes)) : take(bytes, zeroed);
    };
    if (kSanitized || random_() % 4 != 0) return take_now();  // sanitizers need memory of their own
    const Shortage shortage(random_() % 2 == 0 ? RLIMIT_AS : RLIMIT_DATA);
    return take_now();
  }
  void free_one() {
    const auto found = some_block();
    check(found->first, found->second);
    end(found->first, found->second);
    blocks_.erase(found);
  }
  void end(char* at, const Block& block) {
    if (!block.mapped) return process_heap().free(at);
    const Range whole{reinterpret_cast<Address>(at), page_ceil(reinterpret_cast<Address>(at) + block.bytes)};
    const Address middle = whole.begin + random_() % (whole.bytes() / page_size()) * page_size();
    if (middle != whole.begin) {
      ASSERT_TRUE(process_heap().unmap({middle, whole.end}));
    }
    ASSERT_TRUE(process_heap().unmap(whole));
  }
  void lease_part() {
    const auto [at, block] = *some_block();
    const std::size_t from = random_() % block.bytes, bytes = 1 + random_() % (block.bytes - from);
    Lease lease{{}, Range::of(at + from, bytes), {}};
    const bool served = this->lease(at + from, bytes, lease.transfer);
    if (!served && !acquire(at + from, bytes, lease.transfer)) return;
    const Region& region = *lease.transfer.region();
    lease.key = region.key;
    ASSERT_TRUE(device_->serves(lease.key, lease.range, Access::write));
    const std::lock_guard lock(mutex_);
    ASSERT_GE(registered_at_[region.range().begin], served ? g_changes.of(lease.range) : 0) << "stale";
    leases_.push_back(lease);
  }
  void release_one() {
    std::swap(leases_[random_() % leases_.size()], leases_.back());
    Lease& lease = leases_.back();
    ASSERT_TRUE(device_->serves(lease.key, lease.range, Access::write)) << "gone under a lease";
    if (lease.transfer.in_arena != 0) {
      const volatile char* const memory = reinterpret_cast<char*>(lease.range.begin);
      static_cast<void>(memory[0] + memory[lease.range.bytes() - 1]);  // mapped, though its block may be free
    }
    leases().release(*this_thread(), lease.transfer);
    leases_.pop_back();
  }
  /// Some pages of a block read as zeros from now on: dropped, or replaced by others.
  void change(bool drop) {
    auto& [at, block] = *some_block();
    const std::size_t from = random_() % block.pages.size();
    const std::size_t pages = 1 + random_() % (block.pages.size() - from);
    char* const begin = at_page(at, from);
    if (drop)
      ASSERT_EQ(advise(begin, pages * page_size(), MADV_DONTNEED), 0);
    else
      ASSERT_EQ(::mmap(begin, pages * page_size(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                begin);
    std::fill_n(block.pages.begin() + static_cast<std::ptrdiff_t>(from), pages, char{0});
    check(at, block);
  }

  /// Memory of a block that the program then frees: unmapped, without rights, moved, or a file's.
  void take_away() {
    const auto [at, block] = *some_block();
    const Range whole = Range::of(at, block.bytes);
    if (std::any_of(leases_.begin(), leases_.end(), [&](const Lease& l) { return l.range.overlaps(whole); }))
      return;  // release_one() reads their memory
    const std::size_t from = random_() % block.pages.size();
    const std::size_t bytes = (1 + random_() % (block.pages.size() - from)) * page_size();
    char* const begin = at_page(at, from);
    const unsigned way = random_() % (kAliased ? 5 : 6);
    const bool hides = way < 3;
    if (way == 5) {
      ASSERT_EQ(advise(begin, bytes, MADV_WIPEONFORK), 0);
      test::in_child([&] { EXPECT_EQ(*begin, 0); });
    } else if (way == 4) {
      move_away(begin, bytes, block.pages[from]);
    } else if (way == 3) {
      map_file(begin, bytes);
    } else if (way > 0) {
      ASSERT_EQ(::munmap(begin, bytes), 0);
    } else {
      ASSERT_EQ(::mprotect(begin, bytes, PROT_NONE), 0);
    }
    ASSERT_NE(is_readable(begin), hides);
    ASSERT_TRUE(from == 0 || *at_page(at, from - 1) == block.pages[from - 1]);
    if (hides && random_() % 2 == 0) test::in_child([&] { EXPECT_FALSE(is_readable(begin)); });
    end(at, block);
    blocks_.erase(at);
  }
  void move_away(char* begin, std::size_t bytes, char first) {
    char* const moved =
        static_cast<char*>(::mremap(begin, bytes, bytes + random_() % 2 * page_size(), MREMAP_MAYMOVE));
    if (moved == MAP_FAILED) {  // of a mapping that the program laid there before
      ASSERT_EQ(errno, ENOMEM);
      ASSERT_FALSE(process_arena().changes().is_whole(Range::of(begin, bytes)));
      return;
    }
    if (moved == begin) return;
    ASSERT_FALSE(process_arena().range().contains(Range::of(moved, 1)));
    ASSERT_EQ(*moved, first);
    ASSERT_EQ(::munmap(moved, bytes), 0);
  }
  void check_file() {
    if (file_ < 0) return;
    EXPECT_TRUE(file_is_filled(file_, page_size(), 3));
    ::close(file_);
  }
  void map_file(char* begin, std::size_t bytes) {
    check_file();
    file_ = map_shared_over(begin, page_size(), 3);
    if (random_() % 2 == 0) {
      ASSERT_EQ(::munmap(begin, bytes), 0);
      ASSERT_EQ(::mprotect(begin, bytes, PROT_READ), 0);
    }
  }

  std::mt19937 random_{GetParam()};
  int file_ = -1;  ///< lay over a block that is freed
  test::FakeDevice* device_ = nullptr;
  std::map<char*, Block> blocks_;
  std::vector<Lease> leases_;
  std::atomic<bool> refuses_{false};
  std::mutex mutex_;
  std::map<Address, std::uint64_t> registered_at_;  ///< the changes before, by begin; guarded by the mutex
};

TEST_P(ArenaModelTest, HoldsInAnyOrderOfSteps) {
  ASSERT_NO_FATAL_FAILURE(begin());
  const int steps = static_cast<int>((kSanitized ? 1000 : 4000) * test::test_scale());
  for (int i = 0; i < steps && !HasFailure(); ++i) step();
  end();
}
INSTANTIATE_TEST_SUITE_P(Seeds, ArenaModelTest, testing::Values(1u, 2u));

}  // namespace
}  // namespace pinion
