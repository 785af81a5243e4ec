// Changes of memory that a sink holds back or refuses, as the program meets them: by libc's hooks, and once
// more with the symbols preloaded (CMakeLists.txt).
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "monitor/libc_hooks.h"
#include "monitor/memory_events.h"
#include "monitor/system_call.h"
#include "monitor/userfault.h"
#include "support/deterministic_scheduler.h"
#include "support/eventually.h"

namespace pinion {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kForeignAllocator = true;  // the sanitizers' own, which goes past libc
#else
constexpr bool kForeignAllocator = false;
#endif

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr std::size_t kPages = 4;

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

/// Has remote holders of one range.
class Holder final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    if (!change.range.overlaps({begin_.load(), end_.load()})) return Answer::proceed;
    asked_.fetch_add(1);
    alternative_.store(change.alternative);
    return change.alternative;
  }
  void hold(Range range) {
    asked_ = 0;
    begin_ = range.begin;
    end_ = range.end;
  }
  void let_go() { hold({}); }
  int asked() const { return asked_.load(); }
  Answer alternative() const { return alternative_.load(); }

 private:
  std::atomic<Address> begin_{0}, end_{0};
  std::atomic<int> asked_{0};
  std::atomic<Answer> alternative_{Answer::proceed};
};
Holder g_holder, g_second;

/// A peer's read, by the kernel: false where there is no memory.
bool peer_reads(Range range, char expected) {
  std::vector<char> copy(range.bytes());
  const iovec from{pointer(range.begin), range.bytes()}, to{copy.data(), copy.size()};
  if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(range.bytes()))
    return false;
  return std::all_of(copy.begin(), copy.end(), [&](char c) { return c == expected; });
}

class HeldBackMemory : public testing::Test {
 protected:
  void SetUp() override {
    memory_events::watch(symbols_are_preloaded() ? MonitorKind::symbols : MonitorKind::libc);
    ASSERT_FALSE(memory_events::add(g_holder));
    memory_ = map();
  }
  void TearDown() override {
    g_holder.let_go();
    memory_events::remove(g_holder);
    EXPECT_EQ(memory_events::carry_out(), 0u);
    ::munmap(pointer(memory_.begin), memory_.bytes());
    memory_events::leave();
  }
  static Range map(std::size_t pages = kPages, char contents = 'x') {
    void* const p = ::mmap(nullptr, pages * page_size(), kReadWrite, kAnonymous, -1, 0);
    EXPECT_NE(p, MAP_FAILED);
    std::memset(p, contents, pages * page_size());
    return Range::of(p, pages * page_size());
  }
  int unmap() { return ::munmap(pointer(memory_.begin), memory_.bytes()); }
  void* map_over() {
    return ::mmap(pointer(memory_.begin), memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED, -1, 0);
  }
  /// The last call failed with ENOMEM, and nothing has happened.
  void expect_refused(bool failed) {
    EXPECT_TRUE(failed);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(peer_reads(memory_, 'x'));
    EXPECT_FALSE(memory_events::brackets().changing(memory_));
    errno = 0;
  }

  Range memory_;
};

TEST_F(HeldBackMemory, MunmapIsCarriedOutWhenTheHolderHasLetGo) {
  g_holder.hold(memory_);
  errno = EDOM;
  EXPECT_EQ(unmap(), 0);
  EXPECT_EQ(errno, EDOM);
  EXPECT_EQ(g_holder.asked(), 1);
  EXPECT_EQ(g_holder.alternative(), Answer::hold_back);
  EXPECT_FALSE(memory_events::brackets().changing(memory_));
  EXPECT_TRUE(peer_reads(memory_, 'x'));
  EXPECT_EQ(memory_events::carry_out(), 1u) << "it is held still";
  EXPECT_EQ(g_holder.asked(), 2);
  EXPECT_TRUE(peer_reads(memory_, 'x'));
  EXPECT_FALSE(map().overlaps(memory_)) << "the address is in use";
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_FALSE(peer_reads(memory_, 'x'));
  EXPECT_FALSE(memory_events::brackets().changing(memory_));
}

TEST_F(HeldBackMemory, ByNumberToo) {
  g_holder.hold(memory_);
  EXPECT_EQ(::syscall(SYS_munmap, memory_.begin, memory_.bytes()), 0);
  EXPECT_TRUE(peer_reads(memory_, 'x'));
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_FALSE(peer_reads(memory_, 'x'));
}

TEST_F(HeldBackMemory, AllHoldersHaveToLetGo) {
  ASSERT_FALSE(memory_events::add(g_second));
  g_holder.hold(memory_);
  g_second.hold({memory_.end - page_size(), memory_.end});
  EXPECT_EQ(unmap(), 0);
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 1u);
  EXPECT_TRUE(peer_reads(memory_, 'x'));
  // A sink that has left holds nothing.
  memory_events::remove(g_second);
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_FALSE(peer_reads(memory_, 'x'));
  g_second.let_go();
}

TEST_F(HeldBackMemory, MappingOverItIsRefusedUntilItHasGone) {
  g_holder.hold(memory_);
  expect_refused(map_over() == MAP_FAILED);
  EXPECT_EQ(g_holder.alternative(), Answer::refuse);
  EXPECT_EQ(unmap(), 0);
  expect_refused(map_over() == MAP_FAILED);
  g_holder.let_go();
  expect_refused(map_over() == MAP_FAILED);  // the program has given it up, and it is still there
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_EQ(map_over(), pointer(memory_.begin));
  EXPECT_TRUE(peer_reads(memory_, 0));
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_TRUE(peer_reads(memory_, 0));
}

TEST_F(HeldBackMemory, OtherCallsAreRefused) {
  g_holder.hold(memory_);
  void* const at = pointer(memory_.begin);
  const std::size_t bytes = memory_.bytes();
  expect_refused(::mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE) == MAP_FAILED);
  expect_refused(::mremap(at, bytes, bytes / 2, 0) == MAP_FAILED);
  const Range other = map();
  expect_refused(::mremap(pointer(other.begin), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) ==
                 MAP_FAILED);
  EXPECT_TRUE(peer_reads(other, 'x'));
  EXPECT_FALSE(memory_events::brackets().changing(other));
  ::munmap(pointer(other.begin), other.bytes());
  expect_refused(::madvise(at, bytes, MADV_DONTNEED) == -1);
  expect_refused(::mprotect(at, bytes, PROT_NONE) == -1);
  expect_refused(::syscall(SYS_madvise, at, bytes, MADV_DONTNEED) == -1);
  // Rights that are kept are no event.
  EXPECT_EQ(::mprotect(at, bytes, kReadWrite), 0);
}

TEST_F(HeldBackMemory, TheBreakStays) {
  const auto before = static_cast<char*>(::sbrk(0));
  const auto bytes = static_cast<std::intptr_t>(2 * page_size());
  ASSERT_NE(::sbrk(bytes), reinterpret_cast<void*>(-1));
  void* const grown = ::sbrk(0);
  g_holder.hold(Range::of(page_ceil(reinterpret_cast<Address>(before)) + static_cast<char*>(nullptr), 1));
  errno = 0;
  EXPECT_EQ(::sbrk(-bytes), reinterpret_cast<void*>(-1));
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(::brk(before), -1);
  EXPECT_EQ(::syscall(SYS_brk, before), reinterpret_cast<long>(grown)) << "as the kernel answers";
  EXPECT_EQ(::sbrk(0), grown);
  g_holder.let_go();
  EXPECT_EQ(::sbrk(-bytes), grown);
}

TEST_F(HeldBackMemory, ShmdtGoesOn) {
  const int id = ::shmget(IPC_PRIVATE, page_size(), IPC_CREAT | 0600);
  ASSERT_GE(id, 0);
  void* const at = ::shmat(id, nullptr, 0);
  ::shmctl(id, IPC_RMID, nullptr);
  const Range segment = Range::of(at, page_size());
  g_holder.hold(segment);
  EXPECT_EQ(::shmdt(at), 0);
  EXPECT_EQ(g_holder.alternative(), Answer::proceed);
  EXPECT_FALSE(peer_reads(segment, 0));
}

TEST_F(HeldBackMemory, AChildHasNoHolders) {
  g_holder.hold(memory_);
  EXPECT_EQ(unmap(), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    g_holder.let_go();
    ::_exit(map_over() == pointer(memory_.begin) && memory_events::carry_out() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(peer_reads(memory_, 'x'));
}

// ---- libc's own calls, which the symbols miss ----

class HeldBackByLibc : public HeldBackMemory {
 protected:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;
  void SetUp() override {
    if (kForeignAllocator || symbols_are_preloaded()) GTEST_SKIP() << "libc's own calls go unseen";
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    HeldBackMemory::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) HeldBackMemory::TearDown();
  }
  static char* block(char contents) {
    auto* const p = static_cast<char*>(std::malloc(kBytes));
    std::memset(p, contents, kBytes);
    return p;
  }
};

TEST_F(HeldBackByLibc, FreeOfALargeBlock) {
  char* const p = block('f');
  const Range contents = Range::of(p, kBytes);
  g_holder.hold(contents);
  std::free(p);
  EXPECT_EQ(g_holder.alternative(), Answer::hold_back);
  EXPECT_TRUE(peer_reads(contents, 'f'));
  char* const next = block('n');
  EXPECT_FALSE(contents.overlaps(Range::of(next, kBytes)));
  std::free(next);
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_FALSE(peer_reads(contents, 'f'));
}

/// It grows by mremap, which is refused: malloc copies, and its munmap of the old block is held back.
TEST_F(HeldBackByLibc, ReallocToALargerBlock) {
  char* const p = block('r');
  const Range contents = Range::of(p, kBytes);
  g_holder.hold(contents);
  auto* const larger = static_cast<char*>(std::realloc(p, 2 * kBytes));
  ASSERT_NE(larger, nullptr);
  EXPECT_NE(larger, p);
  EXPECT_TRUE(peer_reads(Range::of(larger, kBytes), 'r'));
  EXPECT_TRUE(peer_reads(contents, 'r'));
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_FALSE(peer_reads(contents, 'r'));
  std::free(larger);
}

TEST_F(HeldBackByLibc, ReallocToASmallerBlock) {
  char* const p = block('s');
  const Range contents = Range::of(p, kBytes);
  g_holder.hold(contents);
  void* const smaller = std::realloc(p, kBytes / 2);
  EXPECT_EQ(reinterpret_cast<Address>(smaller), contents.begin);
  EXPECT_TRUE(peer_reads(contents, 's'));
  g_holder.let_go();
  std::free(smaller);
  EXPECT_FALSE(peer_reads(contents, 's'));
}

TEST_F(HeldBackByLibc, StackOfAThread) {
  constexpr std::size_t kStack = std::size_t{64} << 20;  // more than libc caches
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStack);
  static std::atomic<Address> on_stack;
  const auto body = [](void*) -> void* {
    volatile char local[64] = {};
    on_stack = reinterpret_cast<Address>(&local[0]);
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(::pthread_create(&thread, &attributes, body, nullptr), 0);
  ASSERT_TRUE(test::eventually([] { return on_stack.load() != 0; }));
  const Range page = Range{on_stack, on_stack + 1}.to_pages();
  g_holder.hold(page);
  ASSERT_EQ(::pthread_join(thread, nullptr), 0);
  unsigned char resident;
  EXPECT_EQ(::mincore(pointer(page.begin), page.bytes(), &resident), 0) << "it is mapped still";
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_EQ(::mincore(pointer(page.begin), page.bytes(), &resident), -1);
}

// ---- changes that cannot be held back ----

TEST_F(HeldBackMemory, TheKernelsEventsGoOn) {
  if (const Error refused = userfaultfd_refused()) GTEST_SKIP() << refused.message;
  memory_events::leave();
  memory_events::watch(MonitorKind::userfaultfd);
  ASSERT_FALSE(watch_by_userfaultfd(memory_));
  g_holder.hold(memory_);
  EXPECT_EQ(unmap(), 0);
  wait_for_userfaultfd();
  EXPECT_EQ(g_holder.asked(), 1);
  EXPECT_EQ(g_holder.alternative(), Answer::proceed);
  EXPECT_FALSE(peer_reads(memory_, 'x'));
}

/// Unmapped past libc after it was held back, its place is free for other memory, which must stay.
TEST_F(HeldBackMemory, AMappingThatAppearsInItsPlaceIsLeftAlone) {
  g_holder.hold(memory_);
  EXPECT_EQ(unmap(), 0);
  raw_system_call(SYS_munmap, arguments_of(memory_.begin, memory_.bytes()));
  ASSERT_EQ(
      ::mmap(pointer(memory_.begin), memory_.bytes(), kReadWrite, kAnonymous | MAP_FIXED_NOREPLACE, -1, 0),
      pointer(memory_.begin));
  g_holder.let_go();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_TRUE(peer_reads(memory_, 0));
}

// ---- many threads ----

/// Holds a third of all ranges back, for as long as it pleases.
class Moody final : public MemorySink {
 public:
  Answer changing(const MemoryChange& change) override {
    calls.fetch_add(1, std::memory_order_relaxed);
    return change.range.begin / page_size() % 3 == mood.load(std::memory_order_relaxed) ? change.alternative
                                                                                        : Answer::proceed;
  }
  void changed(Range) override { calls.fetch_add(1, std::memory_order_relaxed); }
  std::atomic<unsigned> mood{0};
  std::atomic<std::uint64_t> calls{0};
};
Moody g_moody[4];

/// Threads map and unmap, while sinks come and go, change their minds, and have changes carried out. Memory
/// that a thread has mapped is its own until it unmaps it.
TEST_F(HeldBackMemory, ManyThreads) {
  const auto steps = static_cast<int>(3'000 * test::test_scale());
  std::atomic<int> running{3};
  std::atomic<std::uint64_t> refused{0};
  const auto program = [&](char mark) {
    for (int i = 0; i < steps && !HasFailure(); ++i) {
      const Range mine = map(2, mark);
      void* const over = ::mmap(pointer(mine.begin), page_size(), kReadWrite, kAnonymous | MAP_FIXED, -1, 0);
      refused += over == MAP_FAILED;
      if (over != MAP_FAILED) std::memset(over, mark, page_size());
      std::this_thread::yield();
      for (Address at = mine.begin; at < mine.end; ++at)
        if (*static_cast<volatile char*>(pointer(at)) != mark) return ADD_FAILURE() << "not this thread's";
      EXPECT_EQ(::munmap(pointer(mine.begin), mine.bytes()), 0);
    }
    --running;
  };
  const auto sinks = [&](unsigned first) {
    for (unsigned i = 0; running > 0; ++i) {
      Moody& sink = g_moody[2 * first + i % 2];
      sink.mood = i % 5;
      EXPECT_FALSE(memory_events::add(sink));
      std::this_thread::yield();
      memory_events::carry_out();
      memory_events::remove(sink);
      memory_events::carry_out();
    }
  };
  std::vector<std::thread> threads;
  for (const char mark : {'a', 'b', 'c'}) threads.emplace_back(program, mark);
  for (const unsigned first : {0u, 1u}) threads.emplace_back(sinks, first);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory_events::carry_out(), 0u);
  EXPECT_GT(g_moody[0].calls + g_moody[1].calls, 0u);
  std::printf("%llu of %d mappings refused\n", static_cast<unsigned long long>(refused.load()), 3 * steps);
}

}  // namespace
}  // namespace pinion
