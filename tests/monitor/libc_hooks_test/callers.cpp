// libc's own calls, signal handlers, children, threads.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "fixture.h"
#include "support/eventually.h"

namespace pinion::libc_hooks_test {
namespace {

// ---- libc's own calls ----

/// A block's pages without the first and last, which its neighbours share.
Range inner_pages(char* block, std::size_t bytes) {
  const auto begin = reinterpret_cast<Address>(block);
  return {page_ceil(begin), page_floor(begin + bytes)};
}

TEST_F(LibcHooks, FreeOfALargeBlockInManyThreads) {
  if (kForeignAllocator) GTEST_SKIP() << "the allocator makes its own system calls";
  const auto body = [this] {
    for (int i = 0; i < 20; ++i) {
      constexpr std::size_t kBytes = std::size_t{40} << 20;
      char* const block = static_cast<char*>(std::malloc(kBytes));
      ASSERT_NE(block, nullptr);
      block[kBytes / 2] = kContents;
      const Range inside = inner_pages(block, kBytes);
      watch(inside, block + kBytes / 2);
      std::free(block);
      const std::vector<Event> events = seen();
      ASSERT_EQ(events.size(), 2u);
      EXPECT_TRUE(events[0].range.contains(inside));
      EXPECT_LE(events[0].range.bytes(), inside.bytes() + 3 * page_);
      EXPECT_TRUE(events[0].is_begin && events[0].intact);
      EXPECT_FALSE(events[1].is_begin || events[1].intact);
    }
  };
  // One after the other: the recorder watches one block at a time.
  for (int i = 0; i < 4; ++i) std::thread(body).join();
}

TEST_F(LibcHooks, ReallocOfALargeBlock) {
  if (kForeignAllocator) GTEST_SKIP() << "the allocator makes its own system calls";
  constexpr std::size_t kBytes = std::size_t{40} << 20;
  char* block = static_cast<char*>(std::malloc(kBytes));
  const Range old = inner_pages(block, kBytes);
  watch(old);
  char* const grown = static_cast<char*>(std::realloc(block, 3 * kBytes));
  Ranges ranges = seen_ranges();
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_TRUE(ranges[0].contains(old));

  const Range tail = inner_pages(grown + 2 * page_ + kBytes, 2 * kBytes - 2 * page_);
  const Range head = inner_pages(grown, kBytes);
  const Range own_pages = inner_pages(grown, 3 * kBytes);
  watch(own_pages);
  char* const shrunk = static_cast<char*>(std::realloc(grown, kBytes));
  ranges = seen_ranges();
  EXPECT_TRUE(own_pages.contains(inner_pages(shrunk, kBytes)));
  ASSERT_EQ(ranges.size(), 1u);
  EXPECT_TRUE(ranges[0].contains(tail));
  EXPECT_FALSE(ranges[0].overlaps(head));
  std::free(shrunk);
}

TEST_F(LibcHooks, EveryPageThatTrimmingDropsIsAnnounced) {
  if (kForeignAllocator) GTEST_SKIP() << "the allocator makes its own system calls";
  constexpr std::size_t kBlock = 96 << 10, kBlocks = 200;
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // so that the blocks come from the heap
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::array<char*, kBlocks> blocks;
  for (char*& block : blocks) {
    block = static_cast<char*>(std::malloc(kBlock));
    std::memset(block, kContents, kBlock);
  }
  std::array<Address, kBlocks> middles;
  for (std::size_t i = 0; i < kBlocks; ++i)
    middles[i] = page_ceil(reinterpret_cast<Address>(blocks[i]) + kBlock / 2);
  watch({*std::min_element(middles.begin(), middles.end()),
         *std::max_element(middles.begin(), middles.end()) + page_});
  // Every other one of the first half leaves holes (madvise), all of the second half the top (brk).
  for (std::size_t i = 0; i < kBlocks; ++i) {
    if (i % 2 == 0 || i > kBlocks / 2) std::free(blocks[i]);
  }
  malloc_trim(0);
  const Ranges ranges = seen_ranges();
  std::size_t lost = 0;
  for (const Address middle : middles) {
    if (is_resident(middle)) continue;
    ++lost;
    const Range page{middle, middle + page_};
    EXPECT_TRUE(std::any_of(ranges.begin(), ranges.end(), [&](const Range& r) { return r.contains(page); }))
        << page;
  }
  EXPECT_GE(lost, kBlocks / 2);
  for (std::size_t i = 1; i <= kBlocks / 2; i += 2) std::free(blocks[i]);
}

TEST_F(LibcHooks, StackOfAThreadThatEnds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer has left the thread before";
#endif
  static Address deep = 0;
  const auto body = [](void*) -> void* {
    volatile char frame[512 << 10];
    frame[0] = kContents;
    deep = reinterpret_cast<Address>(&frame[0]);
    watch(Range{deep, deep + 1}.to_pages(), const_cast<char*>(&frame[0]));
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 8 << 20);
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  const std::vector<Event> events = seen();
  if (is_resident(deep)) GTEST_SKIP() << "libc kept the stack";
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
}

// ---- Everywhere a call can come from ----

char* page_for_handler = nullptr;

TEST_F(LibcHooks, SignalHandlerInsideAHook) {
  struct sigaction action {};
  action.sa_handler = [](int) { munmap(page_for_handler, page_size()); };
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  page_for_handler = map_pages(1);
  char* const p = map_pages(1);
  watch({0, UINTPTR_MAX});
  on_begin = [] {
    on_begin = nullptr;
    raise(SIGUSR1);
  };
  EXPECT_EQ(munmap(p, page_), 0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_), Range::of(page_for_handler, page_)}));
  signal(SIGUSR1, SIG_DFL);
}

TEST_F(LibcHooks, ChildOfVfork) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer turns vfork into fork";
#endif
  char* const p = map_pages(1);
  watch(Range::of(p, page_));
  const pid_t child = vfork();
  if (child == 0) {
    munmap(p, page_);  // the parent's memory
    _exit(0);
  }
  ASSERT_GT(child, 0);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_)}));
}

void hammer(const std::atomic<bool>& stop) {
  for (std::size_t i = 1; !stop; ++i) {
    const std::size_t bytes = page_size() * (1 + i % 5);
    char* const p =
        static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(p, MAP_FAILED);
    *p = 1;
    ASSERT_EQ(madvise(p, bytes, MADV_DONTNEED), 0);
    ASSERT_EQ(*p, 0);
    char* const q = static_cast<char*>(mremap(p, bytes, bytes + page_size(), MREMAP_MAYMOVE));
    ASSERT_NE(q, MAP_FAILED);
    ASSERT_EQ(munmap(q, bytes + page_size()), 0);
    char* const block =
        static_cast<char*>(std::malloc(i % 7 == 0 ? std::size_t{34} << 20 : 1 + 1000 * (i % 300)));
    if (block != nullptr) *const_cast<volatile char*>(block) = 1;
    std::free(block);
  }
}

class Hammerers {
 public:
  explicit Hammerers(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { hammer(stop_); });
  }
  ~Hammerers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST_F(LibcHooks, CountsBalanceUnderLoad) {
  {
    const Hammerers threads(4);
    EXPECT_TRUE(test::eventually([&] { return begins.load() > 1000; })) << "the threads do nothing";
  }
  EXPECT_GT(begins.load(), 1000u);
  EXPECT_EQ(begins.load(), ends.load());
}

TEST_F(LibcHooks, PatchedUnderThreadsThatAreInside) {
  const Hammerers threads(3);
  for (int i = 0; i < 200; ++i) {
    uninstall_libc_hooks();
    ASSERT_TRUE(install_libc_hooks({note_begin, note_end}).complete);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace pinion::libc_hooks_test
