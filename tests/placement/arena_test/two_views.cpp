// Segments with two views, of which devices register the second.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "fixture.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/in_child.h"

namespace pinion::arena_test {
namespace {

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

TEST_F(AliasedArenaTest, AChildHasAMappingOverABlockThatTheProgramShowsAgain) {
  for (const bool served_before : {false, true}) {
    start();
    char* const block = take(4 * kMiB);
    std::memset(block, 7, 4 * kMiB);
    if (served_before) {
      ASSERT_TRUE(serves(block, 4 * kMiB));
    }
    char* const over = block + kMiB;
    ASSERT_EQ(::mmap(over, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              over);
    std::memset(over, 5, kMiB);
    ASSERT_EQ(advise(block, 4 * kMiB, MADV_DONTFORK), 0);
    ASSERT_EQ(advise(block, 4 * kMiB, MADV_DOFORK), 0);
    test::in_child([&] {
      ASSERT_TRUE(is_readable(over));
      EXPECT_TRUE(is_filled(over, kMiB, 5));
      EXPECT_TRUE(is_filled(block, kMiB, 7));
      EXPECT_TRUE(is_filled(block + 2 * kMiB, 2 * kMiB, 7));
    });
    process_heap().free(block);
    Engine::stop();
    process_heap().relieve();
  }
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
  lease_path().release(*this_thread(), held);
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

}  // namespace
}  // namespace pinion::arena_test
