// The arena's blocks and registrations in children of the process.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "fixture.h"
#include "process/engine.h"
#include "support/eventually.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion::arena_test {
namespace {

// ---- forks ----

TEST_F(ArenaTest, AChildHasTheBlocksOfRegisteredSegments) {
  for (const bool leased : {false, true}) {
    start();
    char* const block = take(4 * kMiB);
    std::memset(block, 7, 4 * kMiB);
    Transfer held;
    ASSERT_TRUE(lease(block, 4 * kMiB, held));
    if (!leased) lease_path().release(*this_thread(), held);
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
    EXPECT_EQ(Engine::running()->arena().figures().let_go, leased ? 0u : 1u);
    EXPECT_EQ(registered() != 0, leased);
    EXPECT_TRUE(serves(block, 4 * kMiB));
    EXPECT_EQ(registrations(), leased ? 1u : 2u);
    if (leased) lease_path().release(*this_thread(), held);
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
  lease_path().release(*this_thread(), held);
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
  lease_path().release(*this_thread(), held);
  process_heap().free(block);
  process_heap().free(other);
}

/// Coroutines have such stacks.
TEST_F(ArenaTest, AThreadOnAStackInARegisteredSegmentForks) {
  if (kSanitized) GTEST_SKIP() << "sanitizers know stacks that they have seen begin";
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
  lease_path().release(*this_thread(), held);
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
    Engine::running()->retirement().close(0);
    EXPECT_TRUE(test::eventually([] { return registered() == 0; }));
    Engine::stop();
  });
  lease_path().release(*this_thread(), held);
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
        if (lease(block, 96 << 10, transfer)) lease_path().release(*this_thread(), transfer);
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
    lease_path().release(*this_thread(), transfer);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  process_heap().free(kept);
}

}  // namespace
}  // namespace pinion::arena_test
