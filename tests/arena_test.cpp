// The arena of the process's heap, and requests served from it: registration once, dooming, return by the
// heap, limits, forks, threads. One arena a process; each test starts an engine of its own.
#include "placement/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "placement/hugepage_heap.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class ArenaTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(process_arena().reserve(8 * Arena::kGranule, false)); }

  void start(std::uint64_t limit = 0) {
    Options options;
    options.retention = RetentionKind::leave_pinned;
    options.device = "emulated";
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
  static LeasePath& leases() { return Engine::running()->leases(); }
  static bool lease(const char* at, std::size_t bytes, Transfer& transfer, Access access = Access::write) {
    return leases().lease_in_arena(*this_thread(), 0, Range::of(at, bytes), access, transfer);
  }
  static bool serves(const char* at, std::size_t bytes) {
    Transfer transfer;
    if (!lease(at, bytes, transfer)) return false;
    leases().release(*this_thread(), transfer);
    return true;
  }
  static std::uint64_t registrations() { return Engine::running()->counters().all().registrations; }
  static std::size_t registered() { return Engine::running()->domains().registered_bytes(); }
  template <class Condition>
  static void wait_until(Condition condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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
  ASSERT_EQ(::madvise(block, 2 * kMiB, MADV_DONTNEED), 0);
  EXPECT_EQ(block[0], 0);
  EXPECT_EQ(std::memcmp(block, block + 1, 2 * kMiB - 1), 0);
  EXPECT_EQ(block[2 * kMiB], 7);
  EXPECT_TRUE(serves(block, 4 * kMiB));
  EXPECT_EQ(registrations(), 1u);
  EXPECT_EQ(leases().arena().figures().cleared_bytes, 2 * kMiB);
  process_heap().free(block);
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
  EXPECT_EQ(std::memcmp(again, again + 1, 30 * kMiB - 1), 0);
  EXPECT_EQ(*again, 0);
  EXPECT_TRUE(serves(again, 30 * kMiB));
  process_heap().free(again);
}

TEST_F(ArenaTest, UnderALimitRequestsGoTheOrdinaryWay) {
  start(8 * kMiB);
  char* const block = take(4 * kMiB);
  EXPECT_FALSE(serves(block, 4 * kMiB));
  Transfer transfer;
  EXPECT_TRUE(leases().acquire(*this_thread(), 0, {}, Range::of(block, 4 * kMiB), Access::write, transfer,
                               Refusal::report));
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
  Transfer transfer;
  EXPECT_TRUE(leases().acquire(*this_thread(), 0, {}, Range::of(other, 8 * kMiB), Access::write, transfer,
                               Refusal::report));
  leases().release(*this_thread(), transfer);
  EXPECT_EQ(leases().arena().figures().let_go, 1u);
  ::munmap(other, 8 * kMiB);
  process_heap().free(block);
}

TEST_F(ArenaTest, AChildHasTheBlocksOfRegisteredSegments) {
  start();
  char* const block = take(4 * kMiB);
  std::memset(block, 7, 4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  process_heap().before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    process_heap().after_fork_in_child();
    bool good = block[0] == 7 && std::memcmp(block, block + 1, 4 * kMiB - 1) == 0;
    std::memset(block, 8, 4 * kMiB);
    char* const own = take(kMiB, true);
    good = good && own != nullptr && own[0] == 0 && block[4 * kMiB - 1] == 8;
    ::_exit(good ? 0 : 1);
  }
  process_heap().after_fork_in_parent();
  ASSERT_GT(child, 0);
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(block[0], 7);
  EXPECT_TRUE(serves(block, 4 * kMiB));
  process_heap().free(block);
}

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

}  // namespace
}  // namespace pinion
