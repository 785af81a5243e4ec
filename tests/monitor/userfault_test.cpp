// Events from userfaultfd: every one that the kernel sends, with its exact range, for system calls of any
// code in any way; the reader's promises (it allocates nothing, and handles an event before an acquire
// depends on it); events that the kernel leaves out; forks, restarts, programs that close all files.
#include "monitor/userfault.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<liburing.h>)
#include <liburing.h>
#endif

#include "monitor/system_call.h"
#include "support/eventually.h"
#include "support/hugepage_pool.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kForeignAllocator = true;
#else
constexpr bool kForeignAllocator = false;

// ---- Allocations on the reader's thread, and on those of the callbacks, are counted

namespace {
thread_local bool t_reads_events = false;
std::atomic<int> g_allocations_by_reader{0};
void count_allocation() {
  if (t_reads_events) g_allocations_by_reader.fetch_add(1);
}
}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void __libc_free(void*);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  count_allocation();
  return __libc_realloc(block, bytes);
}
void free(void* block) {
  count_allocation();
  __libc_free(block);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  count_allocation();
  return __libc_memalign(alignment, bytes);
}
}
#endif

namespace pinion {

std::ostream& operator<<(std::ostream& out, const Range& r) {
  return out << std::hex << "[0x" << r.begin << ", 0x" << r.end << ")" << std::dec;
}

namespace {

using namespace std::chrono_literals;

constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

// ---- Callbacks that remember the events of the memory of interest

struct Event {
  bool is_begin;
  Range range;
  bool handling;  ///< userfaultfd_handling() at that time
};
std::array<Event, 1 << 16> g_events;
std::atomic<std::size_t> g_event_count{0};
std::atomic<Address> g_interest_begin{0}, g_interest_end{0};
std::atomic<std::uint64_t> g_begins{0}, g_ends{0};
std::atomic<void (*)(Range)> g_at_begin{nullptr};

void remember(bool is_begin, Range range) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  t_reads_events = true;
#endif
  if (!range.overlaps({g_interest_begin.load(), g_interest_end.load()})) return;
  const std::size_t slot = g_event_count.fetch_add(1);
  if (slot < g_events.size()) g_events[slot] = {is_begin, range, userfaultfd_handling()};
}
Answer note_begin(const MemoryChange& change) {
  if (const auto action = g_at_begin.load()) action(change.range);
  remember(true, change.range);
  g_begins.fetch_add(1);
  EXPECT_EQ(change.alternative, Answer::proceed) << "the kernel's events happen in any case";
  return Answer::hold_back;
}
void note_end(Range range) {
  remember(false, range);
  g_ends.fetch_add(1);
}

using Ranges = std::vector<Range>;

/// Waits for brackets to be closed; those of drops are later.
void settle() {
  wait_for_userfaultfd();
  EXPECT_TRUE(test::eventually([] { return g_begins.load() == g_ends.load(); })) << "a bracket stays open";
}

/// The ranges whose brackets were opened since watch(), and closed again.
Ranges seen() {
  settle();
  g_interest_begin = g_interest_end = 0;
  Ranges opened, closed;
  for (std::size_t i = 0; i < std::min(g_event_count.load(), g_events.size()); ++i) {
    (g_events[i].is_begin ? opened : closed).push_back(g_events[i].range);
    EXPECT_TRUE(g_events[i].handling) << "begin() was called while acquires were let by";
  }
  EXPECT_EQ(opened, closed);
  return opened;
}

class Userfault : public testing::Test {
 protected:
  void SetUp() override {
    if (const Error error = userfaultfd_refused()) GTEST_SKIP() << error.message;
    g_begins = g_ends = 0;
    const Error error = start_userfaultfd({note_begin, note_end});
    ASSERT_FALSE(error) << error.message;
  }
  void TearDown() override {
    g_at_begin = nullptr;
    stop_userfaultfd();
  }

  /// Memory whose events are of interest from now on.
  Range watch(Range range) {
    settle();
    const Error error = watch_by_userfaultfd(range);
    EXPECT_FALSE(error) << error.message;
    g_event_count = 0;
    g_interest_begin = range.begin;
    g_interest_end = range.end;
    return range;
  }
  Range map(std::size_t pages, int flags = kAnonymous, int fd = -1, int protection = PROT_READ | PROT_WRITE) {
    void* const start = ::mmap(nullptr, pages * page_, protection, flags, fd, 0);
    EXPECT_NE(start, MAP_FAILED) << std::strerror(errno);
    return Range::of(start, pages * page_);
  }
  Range pages_of(Range range, std::size_t first, std::size_t count) const {
    return {range.begin + first * page_, range.begin + (first + count) * page_};
  }
  void unmap(Range range) { EXPECT_EQ(::munmap(pointer(range.begin), range.bytes()), 0); }

  const std::size_t page_ = page_size();
};

#if defined(__SANITIZE_THREAD__)
#define NOT_UNDER_THREAD_SANITIZER() \
  GTEST_SKIP() << "it makes vfork a fork, and lets forked children start no thread"
#else
#define NOT_UNDER_THREAD_SANITIZER() static_cast<void>(0)
#endif

// ---- Every event that there is

TEST_F(Userfault, Munmap) {
  const Range memory = watch(map(8));
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory});
}

TEST_F(Userfault, MunmapOfAPart) {
  const Range memory = watch(map(8));
  unmap(pages_of(memory, 2, 3));
  EXPECT_EQ(seen(), Ranges{pages_of(memory, 2, 3)});
  unmap(memory);
}

TEST_F(Userfault, MunmapOfMoreThanIsWatched) {
  const Range memory = map(16);
  watch(pages_of(memory, 4, 2));
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory});
}

TEST_F(Userfault, WhatIsNotWatchedIsNotSeen) {
  const Range memory = map(16);
  watch(pages_of(memory, 4, 2));
  g_interest_begin = memory.begin;
  g_interest_end = memory.end;
  unmap(pages_of(memory, 0, 4));
  unmap(pages_of(memory, 6, 10));
  EXPECT_EQ(seen(), Ranges{});
  unmap(pages_of(memory, 4, 2));
}

TEST_F(Userfault, MmapOver) {
  const Range memory = watch(map(8));
  ::mmap(pointer(memory.begin + page_), 2 * page_, PROT_READ, kAnonymous | MAP_FIXED, -1, 0);
  EXPECT_EQ(seen(), Ranges{pages_of(memory, 1, 2)});
  unmap(memory);
}

TEST_F(Userfault, MremapThatMoves) {
  const Range memory = map(8);
  const Range moved = watch(pages_of(memory, 0, 4));
  void* const to = ::mremap(pointer(moved.begin), moved.bytes(), 16 * page_, MREMAP_MAYMOVE);
  ASSERT_NE(to, MAP_FAILED);
  ASSERT_NE(to, pointer(moved.begin));
  const Ranges ranges = seen();
  // The kernel reports the move, and the old place that it unmaps.
  ASSERT_FALSE(ranges.empty());
  for (const Range& range : ranges) EXPECT_EQ(range, moved);
  // Watched memory is watched at its new place.
  watch(Range::of(to, page_));
  unmap(Range::of(to, 16 * page_));
  EXPECT_EQ(seen(), Ranges{Range::of(to, 16 * page_)});
  unmap(pages_of(memory, 4, 4));
}

TEST_F(Userfault, MremapThatShrinks) {
  const Range memory = watch(map(8));
  ASSERT_EQ(::mremap(pointer(memory.begin), memory.bytes(), 3 * page_, 0), pointer(memory.begin));
  EXPECT_EQ(seen(), Ranges{pages_of(memory, 3, 5)});
  unmap(pages_of(memory, 0, 3));
}

TEST_F(Userfault, MremapThatGrowsInPlaceIsNone) {
  const Range memory = map(8);
  unmap(pages_of(memory, 4, 4));
  watch(pages_of(memory, 0, 4));
  ASSERT_EQ(::mremap(pointer(memory.begin), 4 * page_, 8 * page_, 0), pointer(memory.begin));
  EXPECT_EQ(seen(), Ranges{});
  unmap(memory);
}

TEST_F(Userfault, MremapOntoAMapping) {
  const Range from = map(4), to = watch(map(4));
  ASSERT_EQ(::mremap(pointer(from.begin), from.bytes(), to.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                     pointer(to.begin)),
            pointer(to.begin));
  EXPECT_EQ(seen(), Ranges{to});
  unmap(to);
}

TEST_F(Userfault, MremapThatKeepsTheOldMapping) {
  const Range memory = watch(map(4));
  void* const to = ::mremap(pointer(memory.begin), memory.bytes(), memory.bytes(),
                            MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  ASSERT_NE(to, MAP_FAILED);
  EXPECT_EQ(seen(), Ranges{memory});
  unmap(Range::of(to, memory.bytes()));
  // Still watched, though its pages have gone.
  watch(memory);
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory});
}

TEST_F(Userfault, MadviseThatDropsPages) {
  const Range memory = map(8);
  for (const int advice : {MADV_DONTNEED, MADV_FREE}) {
    std::memset(pointer(memory.begin), 1, memory.bytes());
    watch(memory);
    ASSERT_EQ(::madvise(pointer(memory.begin + page_), 2 * page_, advice), 0);
    EXPECT_EQ(seen(), Ranges{pages_of(memory, 1, 2)}) << advice;
  }
  unmap(memory);
}

TEST_F(Userfault, ProcessMadvise) {
  const Range memory = watch(map(8));
  const auto self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  const iovec part{pointer(memory.begin), 2 * page_};
  const long done = ::syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0);
  ::close(self);
  const Ranges ranges = seen();
  unmap(memory);
  if (done < 0) GTEST_SKIP() << "this kernel takes no MADV_DONTNEED from process_madvise";
  EXPECT_EQ(ranges, Ranges{pages_of(memory, 0, 2)});
}

TEST_F(Userfault, HeapThatShrinks) {
  const auto start = reinterpret_cast<Address>(::sbrk(static_cast<std::intptr_t>(5 * page_)));
  if (start == ~Address{0}) GTEST_SKIP() << "the heap cannot grow";
  const Range memory = watch({page_ceil(start) + page_, page_ceil(start) + 5 * page_});
  ASSERT_NE(::sbrk(-static_cast<std::intptr_t>(4 * page_)), pointer(~Address{0}));
  EXPECT_EQ(seen(), Ranges{memory});
}

TEST_F(Userfault, FreeOfAMappedBlock) {
  if (kForeignAllocator) GTEST_SKIP() << "the sanitizers' allocators keep what they map";
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  void* const block = std::malloc(8 << 20);
  std::memset(block, 1, 8 << 20);
  watch(Range::of(block, 8 << 20).to_pages());
  std::free(block);
  const Ranges ranges = seen();
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_TRUE(ranges[0].contains(Range::of(block, 8 << 20)));
}

TEST_F(Userfault, ThreadStack) {
  if (kForeignAllocator) GTEST_SKIP() << "threads end otherwise under sanitizers";
  Range deep;
  std::thread thread([&] {
    volatile char frame[256 << 10];
    frame[0] = 1;
    deep = watch(Range::of(const_cast<const char*>(&frame[0]), 1).to_pages());
  });
  thread.join();
  const Ranges ranges = seen();
  ASSERT_FALSE(ranges.empty()) << "libc drops the stacks of ended threads";
  EXPECT_TRUE(ranges[0].contains(deep));
}

// ---- However the call is made

TEST_F(Userfault, MunmapByInlineAssembly) {
  const Range memory = watch(map(4));
  ASSERT_EQ(raw_system_call(SYS_munmap, arguments_of(memory.begin, memory.bytes())), 0);
  EXPECT_EQ(seen(), Ranges{memory});
}

#if __has_include(<liburing.h>) && defined(IORING_FEAT_SINGLE_MMAP)
TEST_F(Userfault, MadviseByIoUring) {
  // Without liburing's library: the entries are made by hand.
  io_uring_params parameters{};
  const auto ring = static_cast<int>(::syscall(SYS_io_uring_setup, 2, &parameters));
  if (ring < 0) GTEST_SKIP() << "no io_uring: " << std::strerror(errno);
  const std::size_t entries_bytes = parameters.sq_entries * sizeof(io_uring_sqe);
  const std::size_t ring_bytes = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
  auto* const entries = static_cast<io_uring_sqe*>(
      ::mmap(nullptr, entries_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES));
  auto* const queue = static_cast<char*>(
      ::mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING));
  ASSERT_NE(static_cast<void*>(entries), MAP_FAILED);
  ASSERT_NE(static_cast<void*>(queue), MAP_FAILED);

  const Range memory = watch(map(8));
  entries[0] = {};
  entries[0].opcode = IORING_OP_MADVISE;
  entries[0].addr = memory.begin;
  entries[0].len = static_cast<unsigned>(2 * page_);
  entries[0].fadvise_advice = MADV_DONTNEED;
  reinterpret_cast<unsigned*>(queue + parameters.sq_off.array)[0] = 0;
  std::atomic_ref(*reinterpret_cast<unsigned*>(queue + parameters.sq_off.tail))
      .store(1, std::memory_order_release);
  ASSERT_EQ(::syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0), 1);
  EXPECT_EQ(seen(), Ranges{pages_of(memory, 0, 2)});

  ::munmap(entries, entries_bytes);
  ::munmap(queue, ring_bytes);
  ::close(ring);
  unmap(memory);
}
#endif

// ---- Kinds of memory

TEST_F(Userfault, SharedMemory) {
  Range memory = watch(map(8, MAP_SHARED | MAP_ANONYMOUS));
  ASSERT_EQ(::madvise(pointer(memory.begin), page_, MADV_REMOVE), 0);
  EXPECT_EQ(seen(), Ranges{pages_of(memory, 0, 1)});
  watch(memory);
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory});

  const int file = ::memfd_create("watched", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(8 * page_)), 0);
  memory = watch(map(8, MAP_SHARED, file));
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory});
  ::close(file);
}

TEST_F(Userfault, HugePages) {
  constexpr std::size_t kHugePage = test::kHugepageBytes;
  const test::HugepagePool pool(2);
  void* const start = ::mmap(nullptr, 2 * kHugePage, PROT_READ | PROT_WRITE, kAnonymous | MAP_HUGETLB, -1, 0);
  if (start == MAP_FAILED) GTEST_SKIP() << "no huge pages can be had";
  // A part of a huge page: the whole is watched.
  const Range memory = Range::of(start, 2 * kHugePage);
  watch(pages_of(memory, 3, 2));
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory});
}

TEST_F(Userfault, FilesAreWatchedOrRefused) {
  char name[] = "/tmp/pinion-userfault-XXXXXX";
  const int file = ::mkstemp(name);
  ASSERT_EQ(::ftruncate(file, static_cast<off_t>(4 * page_)), 0);
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    const Range memory = map(4, flags, file);
    if (const Error error = watch_by_userfaultfd(memory); !error) {
      watch(memory);
      unmap(memory);
      EXPECT_EQ(seen(), Ranges{memory});
    } else {
      EXPECT_EQ(error.code, ENOTSUP);
      unmap(memory);
    }
  }
  ::close(file);
  ::unlink(name);
}

TEST_F(Userfault, MemoryThatIsNotThereIsRefused) {
  const Range memory = map(4);
  unmap(memory);
  EXPECT_TRUE(watch_by_userfaultfd(memory));
}

// ---- Events that the kernel does not report: should it begin to, change the table in
// registry-and-monitor.md

TEST_F(Userfault, ChangedRightsAndSystemVSegmentsAreNotSeen) {
  const Range memory = watch(map(4));
  ::mprotect(pointer(memory.begin), memory.bytes(), PROT_READ);
  EXPECT_EQ(seen(), Ranges{});
  unmap(memory);

  const int segment = ::shmget(IPC_PRIVATE, 4 * page_, 0600);
  if (segment < 0) GTEST_SKIP() << "no System V shared memory";
  void* const start = ::shmat(segment, nullptr, 0);
  ::shmctl(segment, IPC_RMID, nullptr);
  watch(Range::of(start, 4 * page_));
  ::shmdt(start);
  EXPECT_EQ(seen(), Ranges{});
}

// ---- Order

/// A thread that has unmapped finds the event handled, or an odd number to wait on.
TEST_F(Userfault, AnEventIsHandledBeforeItsCallerMayAcquire) {
  static std::atomic<Address> doomed;
  g_at_begin = [](Range range) {
    std::this_thread::yield();  // gives the caller time to get ahead
    doomed = range.begin;
  };
  for (int i = 0; i < 2000; ++i) {
    const Range memory = map(1);
    ASSERT_FALSE(watch_by_userfaultfd(memory));
    doomed = 0;
    ASSERT_EQ(raw_system_call(SYS_munmap, arguments_of(memory.begin, memory.bytes())), 0);
    wait_for_userfaultfd();
    ASSERT_EQ(doomed, memory.begin) << "turn " << i;
  }
}

/// madvise reports before it drops: its bracket outlasts the call.
TEST_F(Userfault, ADropsBracketOutlastsTheCall) {
  int open = 0;
  constexpr int kTurns = 50;
  for (int i = 0; i < kTurns; ++i) {
    const Range memory = watch(map(4));
    const std::uint64_t ends = g_ends;
    ASSERT_EQ(::madvise(pointer(memory.begin), memory.bytes(), MADV_DONTNEED), 0);
    open += g_ends == ends;  // unless this thread was held up for kDropTime
    EXPECT_EQ(seen(), Ranges{memory});
    unmap(memory);
  }
  EXPECT_GT(open, 0);
}

/// More brackets of drops at a time than the reader has places for.
TEST_F(Userfault, ManyDropsAtATime) {
  constexpr std::size_t kDrops = 64;
  const Range memory = watch(map(2 * kDrops));
  for (std::size_t i = 0; i < kDrops; ++i)
    ASSERT_EQ(::madvise(pointer(memory.begin + 2 * i * page_), page_, MADV_DONTNEED), 0);
  settle();
  std::vector<Range> opened;
  for (std::size_t i = 0; i < g_event_count; ++i)
    if (g_events[i].is_begin) opened.push_back(g_events[i].range);
  for (std::size_t i = 0; i < kDrops; ++i) {
    const Range dropped = pages_of(memory, 2 * i, 1);
    EXPECT_TRUE(std::any_of(opened.begin(), opened.end(), [&](Range r) { return r.contains(dropped); })) << i;
  }
  unmap(memory);
}

/// A hook's own bracket is open until madvise is done: there is no need to guess when that is.
TEST_F(Userfault, ADropThatHooksHaveInBracketsClosesAtOnce) {
  static std::atomic<Address> theirs;
  const Range memory = map(4);
  HookCallbacks callbacks{note_begin, note_end};
  callbacks.bracketed = [](Range range) { return range.begin == theirs; };
  ASSERT_FALSE(start_userfaultfd(callbacks));
  theirs = memory.begin;
  for (int i = 0; i < 50; ++i) {
    watch(memory);
    ASSERT_EQ(::madvise(pointer(memory.begin), page_, MADV_DONTNEED), 0);
    wait_for_userfaultfd();
    EXPECT_EQ(g_begins, g_ends);
    EXPECT_EQ(seen(), Ranges{pages_of(memory, 0, 1)});
  }
  unmap(memory);
}

// ---- The reader

TEST_F(Userfault, TheReaderAllocatesNothing) {
  if (kForeignAllocator) GTEST_SKIP() << "allocations are counted by this test's own malloc";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // The counter counts.
  std::thread([] {
    t_reads_events = true;
    std::free(std::malloc(16));
  }).join();
  EXPECT_GE(g_allocations_by_reader.exchange(0), 2);
  for (int i = 0; i < 200; ++i) {
    const Range memory = map(4);
    ASSERT_FALSE(watch_by_userfaultfd(memory));
    ::madvise(pointer(memory.begin), page_, MADV_DONTNEED);
    unmap(memory);
  }
  EXPECT_GE(g_begins.load(), 400u);
  EXPECT_EQ(g_allocations_by_reader.load(), 0);
#endif
}

/// A thread that holds malloc's own lock while it unmaps would wait for ever for a reader that allocates.
TEST_F(Userfault, UnmappingUnderTheAllocatorsLock) {
  if (kForeignAllocator) GTEST_SKIP() << "the lock is glibc's";
  ::mallopt(M_TRIM_THRESHOLD, 64 << 10);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  for (int i = 0; i < 50; ++i) {
    void* const block = std::malloc(4 << 20);
    std::memset(block, 1, 4 << 20);
    ASSERT_FALSE(watch_by_userfaultfd(Range::of(block, 4 << 20).to_pages()));
    std::free(block);  // the heap's top: trimmed under the arena's lock
  }
  EXPECT_GT(g_begins.load(), 0u);
}

std::string reader_status(const char* field) {
  DIR* const tasks = ::opendir("/proc/self/task");
  std::string found;
  while (const dirent* task = ::readdir(tasks)) {
    const std::string path = std::string("/proc/self/task/") + task->d_name;
    std::string name;
    std::getline(std::ifstream(path + "/comm"), name);
    if (name != "pinion-events") continue;
    std::ifstream status(path + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.rfind(field, 0) == 0) found = line.substr(std::strlen(field));
  }
  ::closedir(tasks);
  return found;
}

TEST_F(Userfault, TheReaderTakesNoSignals) {
  const unsigned long long blocked = std::strtoull(reader_status("SigBlk:").c_str(), nullptr, 16);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD})
    EXPECT_TRUE(blocked >> (number - 1) & 1) << number;
}

/// Watched memory keeps its events in a program that closes all files, and the reader reads only its own
/// file.
TEST_F(Userfault, ProgramsThatCloseAllFiles) {
  NOT_UNDER_THREAD_SANITIZER();
  const pid_t child = ::fork();
  if (child == 0) {
    if (start_userfaultfd({note_begin, note_end})) ::_exit(2);
    const Range memory = map(4);
    if (watch_by_userfaultfd(memory)) ::_exit(3);
    ::syscall(SYS_close_range, 3, ~0u, 0);
    int ends[2];
    for (int i = 0; i < 100; ++i) {
      if (::pipe(ends) != 0 || ::write(ends[1], "mine", 4) != 4) ::_exit(4);
    }
    g_begins = 0;
    ::munmap(pointer(memory.begin), memory.bytes());
    wait_for_userfaultfd();
    if (g_begins != 1) ::_exit(5);
    char text[4];
    if (::read(ends[0], text, 4) != 4) ::_exit(6);
    if (!watch_by_userfaultfd(map(4))) ::_exit(7);  // this much is over
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Userfault, StoppedAndStartedAgain) {
  const Range memory = map(8);
  watch(pages_of(memory, 0, 4));
  stop_userfaultfd();
  unmap(pages_of(memory, 0, 2));
  EXPECT_EQ(g_begins.load(), 0u);
  EXPECT_TRUE(watch_by_userfaultfd(memory));
  ASSERT_FALSE(start_userfaultfd({note_begin, note_end}));
  g_interest_begin = memory.begin;
  g_interest_end = memory.end;
  unmap(pages_of(memory, 2, 2));
  EXPECT_EQ(seen(), Ranges{}) << "it was let go";
  watch(pages_of(memory, 4, 4));
  unmap(pages_of(memory, 4, 4));
  EXPECT_EQ(seen(), Ranges{pages_of(memory, 4, 4)});
}

// ---- Forks

TEST_F(Userfault, AChildIsNotDisturbed) {
  NOT_UNDER_THREAD_SANITIZER();
  const Range memory = map(4);
  std::memset(pointer(memory.begin), 7, memory.bytes());
  watch(memory);
  const pid_t child = ::fork();
  if (child == 0) {
    // Nobody reads here: these would hang if they were reported.
    bool ok = *reinterpret_cast<char*>(memory.begin) == 7 && g_begins == 0;
    ::madvise(pointer(memory.begin), page_, MADV_DONTNEED);
    *reinterpret_cast<char*>(memory.begin + page_) = 8;
    ok = ok && ::munmap(pointer(memory.begin), memory.bytes()) == 0 && !userfaultfd_handling();
    // And it may have a userfaultfd of its own.
    const Range own = map(4);
    ok = ok && !start_userfaultfd({note_begin, note_end}) && !watch_by_userfaultfd(own);
    ::munmap(pointer(own.begin), own.bytes());
    wait_for_userfaultfd();
    ::_exit(ok && g_begins == 1 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  unmap(memory);
  EXPECT_EQ(seen(), Ranges{memory}) << "the child's events are not ours";
}

TEST_F(Userfault, AVforkedChildsEventsAreTheParents) {
  NOT_UNDER_THREAD_SANITIZER();
  const Range memory = watch(map(4));
  const pid_t child = ::vfork();
  if (child == 0) {
    raw_system_call(SYS_munmap, arguments_of(memory.begin, memory.bytes()));
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(seen(), Ranges{memory});
}

TEST_F(Userfault, ForksAmidEvents) {
  std::atomic<bool> done{false};
  std::thread events([&] {
    while (!done) {
      const Range memory = map(2);
      EXPECT_FALSE(watch_by_userfaultfd(memory));
      ::madvise(pointer(memory.begin), page_, MADV_DONTNEED);
      ::munmap(pointer(memory.begin), memory.bytes());
    }
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      wait_for_userfaultfd();
      ::_exit(userfaultfd_handling() ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0) << i;
  }
  done = true;
  events.join();
  seen();
}

// ---- Storm

/// Two threads map, watch and let go in all ways, at the same addresses again and again: each finds every
/// event of its own handled.
TEST_F(Userfault, Storm) {
  constexpr std::size_t kSlots = 1 << 14;
  static std::array<std::atomic<std::uint32_t>, kSlots> dooms;  // by page number
  const auto slot_of = [](Address a) { return a / page_size() % kSlots; };
  g_at_begin = [](Range range) {
    for (Address a = range.begin; a < range.end && a - range.begin < kSlots * page_size(); a += page_size())
      dooms[a / page_size() % kSlots].fetch_add(1);
  };
  std::atomic<int> missed{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 3000; ++i) {
      const std::size_t pages = 1 + random() % 8;
      void* const start = ::mmap(nullptr, pages * page_, PROT_READ | PROT_WRITE, kAnonymous, -1, 0);
      Range memory = Range::of(start, pages * page_);
      if (watch_by_userfaultfd(memory)) ++missed;
      const Address probe = memory.begin + random() % pages * page_;
      const std::uint32_t before = dooms[slot_of(probe)];
      const auto bytes = memory.bytes();
      switch (random() % 4) {
        case 0:
          ::munmap(start, bytes);
          memory = {};
          break;
        case 1:
          raw_system_call(SYS_munmap, arguments_of(start, bytes));
          memory = {};
          break;
        case 2:
          ::madvise(start, bytes, MADV_DONTNEED);
          break;
        case 3:
          memory = Range::of(::mremap(start, bytes, bytes + page_, MREMAP_MAYMOVE), bytes + page_);
          break;
      }
      wait_for_userfaultfd();
      const bool grew_in_place = memory.begin == reinterpret_cast<Address>(start) && memory.bytes() > bytes;
      if (dooms[slot_of(probe)] == before && !grew_in_place) ++missed;
      if (!memory.empty()) ::munmap(pointer(memory.begin), memory.bytes());
    }
  };
  std::thread first(work, 1), second(work, 2);
  first.join();
  second.join();
  EXPECT_EQ(missed, 0);
  seen();
}

}  // namespace
}  // namespace pinion
