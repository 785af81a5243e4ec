// Mappings of the program in the arena: served, ended in pieces, and begun as the kernel would.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "fixture.h"
#include "monitor/libc_hooks.h"
#include "monitor/memory_events.h"
#include "monitor/system_call.h"
#include "process/engine.h"
#include "support/eventually.h"
#include "support/foreign_patcher.h"
#include "support/in_child.h"
#include "support/system_call_filter.h"

namespace pinion::arena_test {
namespace {

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
  EXPECT_EQ(again, mapping) << "the smallest hole";
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
    const std::size_t all = registered ? 8 * kMiB : 31 * kMiB;  // of the segment
    char* const again = static_cast<char*>(process_heap().map(all));
    EXPECT_EQ(again, mapping);
    EXPECT_TRUE(is_filled(again, all, 0));
    std::memset(again, 9, all);
    EXPECT_TRUE(::pread(file, &first, 1, 0) == 1 && first == 6);
    ::close(file);
    EXPECT_TRUE(process_heap().unmap(Range::of(again, all)));
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

int memory_policy_at(const char* at) {
  constexpr int kOfAddress = 2;  // MPOL_F_ADDR
  int policy = 0;
  ::syscall(SYS_get_mempolicy, &policy, nullptr, 0, at, kOfAddress);
  return policy;
}
/// Leaves memory as a program may. What the kernel lacks goes unmarked. The calls are direct, as sanitizers
/// drop locks.
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
    EXPECT_EQ(plain, registered ? "dc" : "") << "registered memory is hidden from children";
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

TEST_F(ArenaTest, RegisteredMemoryThatWasOnlyUsedEndsWithoutTheKernel) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer takes mutexes for held that a forked child sets up anew";
#endif
  test::in_child([this] {
    start();
    char* const mapping = static_cast<char*>(process_heap().map(4 * kMiB));
    std::memset(mapping, 7, 4 * kMiB);
    ASSERT_TRUE(serves(mapping, 4 * kMiB));
    for (const long call : {SYS_madvise, SYS_mprotect, SYS_pkey_mprotect, SYS_mbind, SYS_munlock})
      if (!test::refuse_system_call(static_cast<std::uint32_t>(call), EACCES)) return;
    EXPECT_TRUE(process_heap().unmap(Range::of(mapping, 4 * kMiB)));
    char* const again = static_cast<char*>(process_heap().map(4 * kMiB));
    EXPECT_EQ(again, mapping);
    EXPECT_TRUE(is_filled(again, 4 * kMiB, 0)) << "contents of the mapping before";
  });
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
  EXPECT_EQ(marks_at(again), "");
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
    Engine::running()->retirement().close(0);
    EXPECT_TRUE(test::eventually([] { return registered() == 0; }));
    EXPECT_TRUE(test::eventually([&] { return marks_at(block) == ""; }));
    EXPECT_EQ(marks_at(block + kMiB), "dc") << "its mark outlives the registration";
    ASSERT_NO_FATAL_FAILURE(share(hidden, true));
    EXPECT_EQ(marks_at(block + kMiB), "");
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
  lease_path().release(*this_thread(), held);
  process_heap().free(again);
  process_heap().free(other);
}

TEST_F(ArenaTest, AdviceEndsWithItsBlock) {
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP, MADV_NOHUGEPAGE, MADV_RANDOM}) {
    const auto [block, other] = start_with_two_blocks("emulated");
    ASSERT_EQ(advise(block + kMiB, kMiB, advice), 0);
    process_heap().note_left(Range::of(block + kMiB, kMiB), HugepageHeap::Left::advice);
    process_heap().free(block);
    char* const again = take(4 * kMiB);
    EXPECT_EQ(again, block);
    EXPECT_EQ(marks_at(again + kMiB), marks_at(again)) << advice;
    std::memset(again, 8, 4 * kMiB);
    test::in_child([&] { EXPECT_TRUE(is_filled(again, 4 * kMiB, 8)); });
    process_heap().free(again);
    process_heap().free(other);
    Engine::stop();
    process_heap().relieve();
  }
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
  lease_path().release(*this_thread(), held);
  EXPECT_TRUE(test::eventually([] { return registered() == 0; }));
  Engine::running()->retirement().end_closed();
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

// ---- beside other hookers ----

std::atomic<Address> heard_at{0};
std::atomic<int> heard{0};

/// Another library's replacement, which makes the system call itself.
void* foreign_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  if ((flags & MAP_FIXED) != 0 && Range::of(at, bytes).contains({heard_at, heard_at + 1})) ++heard;
  const long got = raw_system_call(SYS_mmap, arguments_of(at, bytes, protection, flags, file, offset));
  if (!is_error(got)) return reinterpret_cast<void*>(got);
  errno = static_cast<int>(-got);
  return MAP_FAILED;
}

TEST_F(ArenaTest, OtherHookersHearOfTheEndOfAMappingOverABlock) {
  if (kSanitized) GTEST_SKIP() << "the sanitizers replace mmap, too";
  for (const bool before : {true, false})
    test::in_child([this, before] {
      const test::ForeignPatcher patcher("mmap");
      const test::ForeignPatch patch = test::absolute_jump(reinterpret_cast<void*>(foreign_mmap));
      if (before) patcher.write(patch);
      start();
      if (!before) {
        patcher.write(patch);
        ASSERT_TRUE(reinstall_hooks().complete);
      }
      char* const block = take(4 * kMiB);
      ::close(map_shared_over(block, kMiB, 5));
      heard_at = reinterpret_cast<Address>(block);
      EXPECT_EQ(::munmap(block, kMiB), 0);  // past the heap, as libc itself does
      EXPECT_EQ(heard, 1) << (before ? "patched before" : "patched after");
      EXPECT_FALSE(is_readable(block));
      heard_at = 0;
      process_heap().free(block);
      Engine::stop();
    });
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

}  // namespace
}  // namespace pinion::arena_test
