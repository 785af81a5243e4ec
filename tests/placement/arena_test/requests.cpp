// Requests served from the arena: of peers, by the C API, refused, from many threads, and while the kernel
// refuses memory.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fixture.h"
#include "lease/thread_fence.h"
#include "process/engine.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/sanitizers.h"
#ifdef __x86_64__
#include "support/locked_instructions.h"
#endif

namespace pinion::arena_test {
namespace {

// ---- cost ----

TEST_F(ArenaTest, ALeaseAndItsReturnTakeNoLockedInstruction) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own would count";
#ifdef __x86_64__
  char* block = nullptr;
  const auto prepare = [&] {
    start();
    block = take(4 * kMiB);
  };
  const long of_lease = test::locked_instructions(prepare, [&] { ASSERT_TRUE(serves(block, 4 * kMiB)); });
  std::atomic<long> word{0};
  const long of_pair = test::locked_instructions([] {}, [&] { ++word, --word; });
  if (of_pair < 0) GTEST_SKIP() << "no process may step through another here";
  EXPECT_EQ(of_pair, 2);
  EXPECT_LE(of_lease, prepare_thread_fence() ? 0 : 1);
#endif
}

// ---- peers ----

TEST_F(ArenaTest, ARequestForPeersClosesASegmentWithLocalRights) {
  start();
  borrow_device(true);
  char* const block = take(4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  Transfer transfer;
  EXPECT_FALSE(lease(block, kMiB, transfer, Access::remote_write));
  ASSERT_TRUE(lease_path().lease_alone(*this_thread(), domain_, {}, Range::of(block, kMiB),
                                       Access::remote_write, transfer, Refusal::report));
  lease_path().release(*this_thread(), transfer);
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
    lease_path().release(*this_thread(), transfer);
  }
  PeerHold hold;
  EXPECT_FALSE(
      lease_path().hold(*this_thread(), domain_, Range::of(block, kMiB).to_pages(), Access::all, hold));
  lease_path().end_hold(*this_thread(), hold);
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
  EXPECT_EQ(Engine::running()->arena().figures().served, 2u);
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
  char* const beside = take(8 * kMiB);
  EXPECT_FALSE(serves(block, 4 * kMiB));
  EXPECT_TRUE(acquires(block, 4 * kMiB)) << "the ordinary way";
  EXPECT_GE(Engine::running()->arena().figures().refused, 1u);
  refuses = false;
  EXPECT_TRUE(test::eventually([&] { return serves(block, 4 * kMiB); }));
  // Refused once it has been registered, and let go.
  refuses = true;
  Engine::running()->retirement().close(domain_);
  EXPECT_TRUE(test::eventually([&] { return device.live() == 0; }));
  const std::uint64_t before = Engine::running()->arena().figures().refused;
  EXPECT_TRUE(test::eventually([&] {
    EXPECT_FALSE(serves(block, 4 * kMiB));
    return Engine::running()->arena().figures().refused > before;
  }));
  EXPECT_TRUE(acquires(block, 4 * kMiB));
  process_heap().free(block);
  process_heap().free(beside);
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
    take(8 * kMiB);
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
  char* const beside = take(8 * kMiB);
  EXPECT_FALSE(serves(block, 4 * kMiB));
  Transfer transfer;
  EXPECT_TRUE(acquire(block, 4 * kMiB, transfer));
  EXPECT_LE(registered(), 8 * kMiB);
  lease_path().release(*this_thread(), transfer);
  EXPECT_EQ(Engine::running()->arena().figures().refused, 1u);
  process_heap().free(block);
  process_heap().free(beside);
}

TEST_F(ArenaTest, ASegmentWithoutLeasesMakesRoomForOthers) {
  start(9 * kMiB);
  char* const block = take(4 * kMiB);
  ASSERT_TRUE(serves(block, 4 * kMiB));
  void* const other = ::mmap(nullptr, 8 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_TRUE(acquires(static_cast<char*>(other), 8 * kMiB));
  EXPECT_EQ(Engine::running()->arena().figures().let_go, 1u);
  ::munmap(other, 8 * kMiB);
  process_heap().free(block);
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
        std::thread([&] { lease_path().release(*this_thread(), transfer); }).join();
      }
    });
  for (int i = 0; i < 100; ++i) {
    Engine::running()->retirement().close(0);
    std::this_thread::yield();
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  Engine::running()->retirement().close(0);
  wait_until([] { return registered() == 0; });
  process_heap().free(block);
}

TEST_F(ArenaTest, ALeaseMayOutliveTheRun) {
  start();
  LeasePath& path = lease_path();
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
    // The segment before may have been closed here within the last second.
    EXPECT_TRUE(test::eventually([&] { return serves(later, 20 * kMiB); }));
    process_heap().free(later);
    Engine::running()->retirement().close(0);
    process_heap().relieve();
    EXPECT_TRUE(test::eventually([] { return process_arena().figures().segments == 0; }));
    Engine::running()->retirement().end_closed();
  }
}

}  // namespace
}  // namespace pinion::arena_test
