// Installing, and each function with its exact range.

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "fixture.h"
#include "monitor/mapping_tails.h"

namespace pinion::libc_hooks_test {
namespace {

// ---- Installing ----

TEST_F(LibcHooks, PatchesEveryFunctionOnce) {
  const HookReport again = install_libc_hooks({note_begin, note_end});
  EXPECT_TRUE(again.complete);
  EXPECT_FALSE(again.error);
  ASSERT_EQ(again.rows.size(), 16u);
  for (const HookStatus& row : again.rows) {
    const bool absent = dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), row.name) == nullptr;
    EXPECT_EQ(row.state, absent ? HookState::skipped : HookState::good) << row.name;
  }
  EXPECT_TRUE(hooks_intact());

  const HookReport other =
      install_libc_hooks({[](const MemoryChange&) { return Answer::proceed; }, note_end});
  EXPECT_EQ(other.error.code, EBUSY);
}

TEST_F(LibcHooks, UninstallingGivesTheEntriesBack) {
  uninstall_libc_hooks();
  EXPECT_FALSE(hooks_intact());
  char* const p = map_pages(1);
  watch(Range::of(p, page_));
  EXPECT_EQ(munmap(p, page_), 0);
  EXPECT_EQ(seen_ranges(), Ranges{});
}

std::atomic<int> unmapped_twice{0};

/// Counts unmappings of memory that is gone already: it may be another thread's by then.
Answer note_unmapping(const MemoryChange& change) {
  unsigned char resident = 0;
  if (change.kind == ChangeKind::unmap &&
      mincore(reinterpret_cast<void*>(change.range.begin), page_size(), &resident) != 0)
    ++unmapped_twice;
  return Answer::proceed;
}

TEST(SelfTest, UnmapsNothingTwice) {
  ASSERT_TRUE(install_libc_hooks({note_unmapping, note_end}).complete);
  unmapped_twice = 0;
  test_memory_events();
  EXPECT_EQ(unmapped_twice, 0);
  uninstall_libc_hooks();
}

// Another thread gets the address as soon as the test has let it go.
TEST(SelfTest, FindsItsEventAmongThoseOfOthers) {
  const std::size_t page = page_size();
  const Range own{16 * page, 18 * page}, others{17 * page, 40 * page};
  EventWatch seen;
  seen.start(own);
  seen.note_begin(own);
  seen.note_begin(others);
  seen.note_end(others);
  EXPECT_TRUE(seen.is_open());
  EXPECT_FALSE(seen.saw(own));
  seen.note_end(own);
  EXPECT_FALSE(seen.is_open());
  seen.note_begin(others);
  seen.note_end(others);
  EXPECT_TRUE(seen.saw(own));
  EXPECT_EQ(seen.last(), others);
  EXPECT_FALSE(seen.saw({16 * page, 17 * page}));
}

TEST_F(LibcHooks, SelfTestSeesEveryEvent) {
  const HookReport report = test_memory_events();
  for (const HookStatus& row : report.rows) {
    const std::string name = row.name;
    if (kForeignAllocator && (name == "free of a large block" || name == "thread exit")) continue;
    EXPECT_NE(row.state, HookState::failed) << name << ": " << row.error.message;
  }
  EXPECT_EQ(report.complete, !report.error) << report.error.message;
  EXPECT_GE(report.rows.size(), 15u);
  EXPECT_GE(begins.load(), 11u);  // the callbacks have them too
  EXPECT_EQ(begins.load(), ends.load());
}

TEST_F(LibcHooks, SelfTestTellsWhatIsNotSeen) {
  uninstall_libc_hooks();
  const HookReport report = test_memory_events();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.error.code, ENOMSG) << report.error.message;
}

// ---- Every call, with its exact range ----

TEST_F(LibcHooks, MunmapBracketsTheEffect) {
  char* const p = map_pages(3);
  watch(Range::of(p, 3 * page_), p + page_);
  ASSERT_EQ(munmap(p + page_, page_ + 1), 0);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].is_begin);
  EXPECT_EQ(events[0].range, Range::of(p + page_, 2 * page_));
  EXPECT_TRUE(events[0].intact);
  EXPECT_FALSE(events[1].is_begin);
  EXPECT_EQ(events[1].range, Range::of(p + page_, 2 * page_));
  EXPECT_FALSE(events[1].intact);
  munmap(p, page_);
}

TEST_F(LibcHooks, MmapOverAMappingBracketsTheEffect) {
  char* const p = map_pages(3);
  watch(Range::of(p, 3 * page_), p + page_);
  ASSERT_EQ(mmap(p + page_, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p + page_);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_EQ(events[0].range, Range::of(p + page_, page_));
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
  munmap(p, 3 * page_);
}

// ---- New mappings at hugepages' borders ----

constexpr std::size_t kAlignment = std::size_t{2} << 20, kAlignedFrom = std::size_t{16} << 20;
std::atomic<Address> last_appeared{0}, last_tail{0};
std::atomic<bool> wishes_tails{false};

class AlignedMappings : public testing::Test {
 protected:
  void SetUp() override {
    HookCallbacks callbacks{note_begin, note_end};
    callbacks.wish = [](std::size_t bytes) {
      return bytes >= kAlignedFrom ? MappingWish{kAlignment, wishes_tails} : MappingWish{};
    };
    callbacks.appeared = [](const NewMapping& mapping) {
      if (mapping.range.bytes() < kAlignedFrom) return;
      last_appeared = mapping.range.begin;
      last_tail = mapping.tail.empty() ? 0 : mapping.tail.end;
    };
    ASSERT_TRUE(install_libc_hooks(callbacks).complete);
  }
  void TearDown() override {
    uninstall_libc_hooks();
    wishes_tails = false;
  }

  static char* map(std::size_t bytes, int flags = 0, void* at = nullptr) {
    void* const p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
  }
  static bool is_aligned(const void* p) { return reinterpret_cast<Address>(p) % kAlignment == 0; }
  static bool is_mapped(const void* p) {
    unsigned char resident;
    return mincore(const_cast<void*>(p), page_size(), &resident) == 0;
  }
  /// A mapping with a tail.
  char* map_with_tail(std::size_t bytes) {
    wishes_tails = true;
    char* const p = map(bytes);
    EXPECT_EQ(last_tail, (reinterpret_cast<Address>(p) + bytes + kAlignment - 1) / kAlignment * kAlignment);
    EXPECT_TRUE(is_mapped(p + bytes));
    EXPECT_TRUE(is_mapped(p + page_floor(bytes_ + kAlignment - page_size() - 1)));
    return p;
  }
  static std::size_t address_space() {
    std::ifstream statm("/proc/self/statm");
    std::size_t pages = 0;
    statm >> pages;
    return pages * page_size();
  }

  /// Four threads, each with a mark of its own.
  template <class Round>
  static int rounds_that_fail(Round&& round) {
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (char mark = 0; mark < 4; ++mark)
      threads.emplace_back([&, mark] {
        for (int i = 0; i < 200; ++i)
          if (!round(mark)) ++failed;
      });
    for (std::thread& thread : threads) thread.join();
    return failed;
  }

  const std::size_t bytes_ = kAlignedFrom + page_size();
};

TEST_F(AlignedMappings, TakeNoMoreThanWasAskedFor) {
  const std::size_t before = address_space();
  std::vector<char*> all;
  for (std::size_t i = 0; i < 5; ++i) {
    errno = ERANGE;
    char* const p = map(bytes_ - i);  // whole pages, and parts of one
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(errno, ERANGE);
    EXPECT_TRUE(is_aligned(p));
    EXPECT_EQ(last_appeared, reinterpret_cast<Address>(p));
    EXPECT_FALSE(is_mapped(p + page_ceil(bytes_)));
    all.push_back(p);
  }
  EXPECT_LE(address_space() - before, all.size() * bytes_);
  for (char* const p : all) {
    std::memset(p, 1, bytes_ - 4);
    EXPECT_EQ(munmap(p, bytes_), 0);
    EXPECT_FALSE(is_mapped(p));
  }
}

TEST_F(AlignedMappings, SoDoBlocksOfMalloc) {
  if (kForeignAllocator) GTEST_SKIP() << "an allocator that makes its own system calls";
  constexpr std::size_t kBlock = std::size_t{64} << 20;
  auto* block = static_cast<char*>(std::malloc(kBlock));
  ASSERT_NE(block, nullptr);
  EXPECT_LT(reinterpret_cast<Address>(block) % kAlignment, page_size());
  block[kBlock - 1] = 7;
  block = static_cast<char*>(std::realloc(block, 2 * kBlock));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block[kBlock - 1], 7);
  std::free(block);
}

TEST_F(AlignedMappings, AddressesThatAreWishedForStay) {
  char* const all = map(2 * kAlignedFrom);
  ASSERT_NE(all, nullptr);
  char* const place = all + page_size();
  ASSERT_EQ(munmap(place, bytes_), 0);
  EXPECT_EQ(map(bytes_, MAP_FIXED_NOREPLACE, place), place);
  ASSERT_EQ(munmap(place, bytes_), 0);
  EXPECT_EQ(map(bytes_, 0, place), place);
  EXPECT_EQ(map(bytes_, MAP_FIXED, place), place);
  munmap(all, 2 * kAlignedFrom);
}

TEST_F(AlignedMappings, LieAnywhereWhereTheirEndsDoNotFit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = address_space() + bytes_ + page_size();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  char* const p = map(bytes_);
  char* const none = map(bytes_);
  const int error = errno;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(p, nullptr);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(error, ENOMEM);
  munmap(p, bytes_);
}

TEST_F(AlignedMappings, ThreadsMapAndUnmap) {
  EXPECT_EQ(rounds_that_fail([&](char mark) {
              char* const p = map(bytes_);
              if (p == nullptr || !is_aligned(p)) return false;
              p[0] = p[bytes_ - 1] = mark;
              return p[0] == mark && p[bytes_ - 1] == mark && munmap(p, bytes_) == 0;
            }),
            0);
}

// ---- Tails that the program knows nothing of ----

TEST_F(AlignedMappings, ATailGoesWithItsMapping) {
  char* const p = map_with_tail(bytes_);
  EXPECT_EQ(munmap(p, bytes_), 0);
  EXPECT_FALSE(is_mapped(p));
  EXPECT_FALSE(is_mapped(p + bytes_));
}

TEST_F(AlignedMappings, ATailGoesWithTheEndOfItsMapping) {
  for (const bool by_number : {false, true}) {
    char* const p = map_with_tail(bytes_);
    const std::size_t kept = kAlignedFrom / 2;
    if (by_number)
      EXPECT_EQ(syscall(SYS_munmap, p + kept, bytes_ - kept), 0);
    else
      EXPECT_EQ(munmap(p + kept, bytes_ - kept), 0);
    EXPECT_FALSE(is_mapped(p + bytes_));
    EXPECT_TRUE(is_mapped(p));
    EXPECT_EQ(munmap(p, kept), 0);
  }
}

TEST_F(AlignedMappings, ATailStaysWhileTheBeginningChanges) {
  char* const p = map_with_tail(bytes_);
  EXPECT_EQ(munmap(p, page_size()), 0);
  EXPECT_EQ(mprotect(p + page_size(), page_size(), PROT_READ), 0);
  EXPECT_TRUE(is_mapped(p + bytes_));
  EXPECT_EQ(munmap(p + page_size(), bytes_ - page_size()), 0);
  EXPECT_FALSE(is_mapped(p + bytes_));
}

TEST_F(AlignedMappings, MappingsWithTailsGrowInPlaceMoveAndShrink) {
  char* p = map_with_tail(bytes_);
  p[bytes_ - 1] = 7;
  const std::size_t larger = bytes_ + page_size();
  ASSERT_EQ(mremap(p, bytes_, larger, 0), p) << "the room behind it is free";
  EXPECT_EQ(p[bytes_ - 1], 7);
  EXPECT_FALSE(is_mapped(p + larger));
  EXPECT_EQ(munmap(p, larger), 0);

  p = map_with_tail(bytes_);
  p[bytes_ - 1] = 8;
  char* const moved = static_cast<char*>(mremap(p, bytes_, 4 * bytes_, MREMAP_MAYMOVE));
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_EQ(moved[bytes_ - 1], 8);
  if (moved != p) {
    EXPECT_FALSE(is_mapped(p + bytes_));
  }
  EXPECT_EQ(munmap(moved, 4 * bytes_), 0);

  p = map_with_tail(bytes_);
  ASSERT_EQ(mremap(p, bytes_, page_size(), 0), p);
  EXPECT_FALSE(is_mapped(p + bytes_));
  EXPECT_EQ(munmap(p, page_size()), 0);
}

TEST_F(AlignedMappings, ATailIsNotTakenFromWhoHasItsPlace) {
  char* const p = map_with_tail(bytes_);
  char* const over = p + bytes_;
  ASSERT_EQ(map(page_size(), MAP_FIXED, over), over);
  EXPECT_FALSE(is_mapped(over + page_size())) << "the rest of the tail";
  EXPECT_EQ(munmap(p, bytes_), 0);
  EXPECT_TRUE(is_mapped(over));
  EXPECT_EQ(munmap(over, page_size()), 0);
}

TEST_F(AlignedMappings, ATailGoesWhereItsPlaceIsWishedFor) {
  for (const int flags : {0, MAP_FIXED_NOREPLACE}) {
    char* const p = map_with_tail(bytes_);
    char* const behind = p + bytes_;
    EXPECT_EQ(map(page_size(), flags, behind), behind);
    EXPECT_EQ(munmap(behind, page_size()), 0);
    EXPECT_EQ(munmap(p, bytes_), 0);
  }
  const int segment = shmget(IPC_PRIVATE, page_size(), 0600);
  ASSERT_GE(segment, 0);
  char* const p = map_with_tail(bytes_);
  EXPECT_EQ(shmat(segment, p + bytes_, 0), p + bytes_);
  EXPECT_EQ(shmctl(segment, IPC_RMID, nullptr), 0);
  EXPECT_EQ(shmdt(p + bytes_), 0);
  EXPECT_EQ(munmap(p, bytes_), 0);
}

TEST_F(AlignedMappings, CallsThatReachBeyondAMappingFailInSpiteOfItsTail) {
  for (const bool by_advice : {false, true}) {
    char* const p = map_with_tail(bytes_);
    const std::size_t beyond = bytes_ + page_size();
    EXPECT_EQ(madvise(p, bytes_, MADV_NORMAL), 0);
    EXPECT_EQ(mprotect(p, bytes_, PROT_READ | PROT_WRITE), 0);
    EXPECT_TRUE(is_mapped(p + bytes_)) << "as what ends with it leaves the tail";
    EXPECT_EQ(by_advice ? madvise(p, beyond, MADV_NORMAL) : mprotect(p, beyond, PROT_READ | PROT_WRITE), -1);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(munmap(p, bytes_), 0);
  }
}

// The limit may be set after them.
TEST_F(AlignedMappings, TailsGoBeforeAddressesAreLacking) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  for (const bool by_number : {false, true}) {
    char* const p = map_with_tail(bytes_);
    const std::size_t more = kAlignment / 2;
    rlimit tight = before;
    tight.rlim_cur = address_space() + page_size();
    ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
    void* const got = by_number ? reinterpret_cast<void*>(syscall(SYS_mmap, nullptr, more, PROT_NONE,
                                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
                                : mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
    EXPECT_NE(got, MAP_FAILED);
    if (got != MAP_FAILED) munmap(got, more);
    EXPECT_FALSE(is_mapped(p + bytes_));
    EXPECT_EQ(munmap(p, bytes_), 0);
  }
}

TEST_F(AlignedMappings, TailsEndWithTheHooks) {
  char* const p = map_with_tail(bytes_);
  uninstall_libc_hooks();
  EXPECT_FALSE(is_mapped(p + bytes_));
  EXPECT_EQ(munmap(p, bytes_), 0);
}

TEST_F(AlignedMappings, AreWithoutTailsWhereTheseAreTooMany) {
  wishes_tails = true;
  std::vector<char*> all;
  for (std::size_t i = 0; i <= MappingTails::kMost; ++i) all.push_back(map(bytes_));
  EXPECT_EQ(last_tail, 0u);
  EXPECT_TRUE(is_aligned(all.back()));
  EXPECT_FALSE(is_mapped(all.back() + bytes_));
  for (char* const p : all) EXPECT_EQ(munmap(p, bytes_), 0);
  EXPECT_NE(last_appeared, 0u);
}

TEST_F(AlignedMappings, ThreadsMapAndUnmapWithTails) {
  wishes_tails = true;
  EXPECT_EQ(rounds_that_fail([&](char mark) {
              char* const p = map(bytes_);
              if (p == nullptr) return false;
              p[0] = p[bytes_ - 1] = mark;
              char* const moved = static_cast<char*>(mremap(p, bytes_, 2 * bytes_, MREMAP_MAYMOVE));
              return moved != MAP_FAILED && moved[bytes_ - 1] == mark && munmap(moved, 2 * bytes_) == 0;
            }),
            0);
}

TEST_F(LibcHooks, MmapThatReplacesNothingIsNoEvent) {
  char* const p = map_pages(1);
  watch(Range::of(p, page_));
  void* const beside = mmap(p, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(beside, MAP_FAILED);
  EXPECT_EQ(mmap(p, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(mmap(p, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_FIXED_NOREPLACE, -1, 0),
            MAP_FAILED);
  EXPECT_EQ(seen_ranges(), Ranges{});
  EXPECT_EQ(*p, kContents);
  munmap(beside, page_);
  munmap(p, page_);
}

TEST_F(LibcHooks, MmapOfHugePagesIsRoundedAsTheKernelDoes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  void* const reserve =
      mmap(nullptr, 2 * kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserve, MAP_FAILED);
  char* const p = reinterpret_cast<char*>((reinterpret_cast<Address>(reserve) + kHuge - 1) & ~(kHuge - 1));
  watch(Range::of(p, kHuge));
  // Whether there are huge pages or not: the range must be right.
  mmap(p, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1,
       0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, kHuge)}));
  munmap(reserve, 2 * kHuge);
}

TEST_F(LibcHooks, MremapOfHugePagesIsRoundedAsTheKernelDoes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  // The memory stays unreserved and untouched, so the system needs no huge pages.
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;
  void* const from = mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (from == MAP_FAILED) GTEST_SKIP() << "this kernel has no huge pages of 2 MiB";
  void* const reserve =
      mmap(nullptr, 2 * kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserve, MAP_FAILED);
  char* const to = reinterpret_cast<char*>((reinterpret_cast<Address>(reserve) + kHuge - 1) & ~(kHuge - 1));
  // Over the memory behind the one page that the call names.
  watch(Range::of(to, kHuge));
  ASSERT_EQ(mremap(from, page_, page_, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(to, kHuge)}));
  // And away from there.
  void* const second = static_cast<char*>(from) + kHuge;
  watch(Range::of(second, kHuge));
  ASSERT_EQ(mremap(second, page_, page_, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(second, kHuge)}));
  munmap(to, kHuge);
  munmap(reserve, 2 * kHuge);
}

// The addresses and lengths are the same, in pages of the common size.
TEST_F(LibcHooks, MremapAtAHugePagesAddressIsSeenAsItIs) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  void* const reserve = mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(reserve, MAP_FAILED);
  char* const p = reinterpret_cast<char*>((reinterpret_cast<Address>(reserve) + kHuge - 1) & ~(kHuge - 1));
  char* const to = map_pages(1);
  watch(Range::of(p, kHuge));
  ASSERT_EQ(mremap(p, page_, page_, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_)}));
  munmap(to, page_);
  munmap(reserve, 2 * kHuge);
}

TEST_F(LibcHooks, MremapThatMoves) {
  char* const p = map_pages(3);
  watch(Range::of(p, page_), p);
  char* const q = static_cast<char*>(mremap(p, page_, 2 * page_, MREMAP_MAYMOVE));
  const std::vector<Event> events = seen();
  ASSERT_NE(q, MAP_FAILED);
  ASSERT_NE(q, p);
  EXPECT_EQ(*q, kContents);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(p, page_));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
  munmap(q, 2 * page_);
  munmap(p + page_, 2 * page_);
}

TEST_F(LibcHooks, MremapThatStaysConcernsOnlyTheTail) {
  for (const int flags : {0, MREMAP_MAYMOVE}) {
    char* const p = map_pages(4);
    watch(Range::of(p, 4 * page_), p + 2 * page_);
    ASSERT_EQ(mremap(p, 4 * page_, page_ + 1, flags), p);
    EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p + 2 * page_, 2 * page_)}));

    watch(Range::of(p, 2 * page_));
    EXPECT_EQ(mremap(p, 2 * page_, 2 * page_, flags), p);
    EXPECT_EQ(seen_ranges(), Ranges{});
    munmap(p, 2 * page_);
  }
  // Growing in place.
  char* const p = map_pages(2);
  munmap(p + page_, page_);
  watch(Range::of(p, page_));
  EXPECT_EQ(mremap(p, page_, 2 * page_, 0), p);
  EXPECT_EQ(seen_ranges(), Ranges{});
  munmap(p, 2 * page_);
}

TEST_F(LibcHooks, MremapOntoAMappingConcernsBothPlaces) {
  char* const from = map_pages(2);
  char* const to = map_pages(2);
  std::memset(from, 1, 2 * page_);
  watch({0, UINTPTR_MAX}, to);
  ASSERT_EQ(mremap(from, 2 * page_, 2 * page_, MREMAP_MAYMOVE | MREMAP_FIXED, to), to);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].range, Range::of(from, 2 * page_));
  EXPECT_EQ(events[1].range, Range::of(to, 2 * page_));
  EXPECT_TRUE(events[1].is_begin && events[1].intact);
  EXPECT_EQ(events[2].range, Range::of(to, 2 * page_));
  EXPECT_FALSE(events[2].is_begin || events[2].intact);
  EXPECT_EQ(events[3].range, Range::of(from, 2 * page_));
  munmap(to, 2 * page_);
}

#ifdef MREMAP_DONTUNMAP
TEST_F(LibcHooks, MremapThatLeavesTheMappingTakesItsPages) {
  char* const p = map_pages(1);
  watch(Range::of(p, page_), p);
  char* const q = static_cast<char*>(mremap(p, page_, page_, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr));
  const std::vector<Event> events = seen();
  ASSERT_NE(q, MAP_FAILED);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].intact);
  EXPECT_FALSE(events[1].intact);
  EXPECT_EQ(*p, 0);
  munmap(p, page_);
  munmap(q, page_);
}
#endif

TEST_F(LibcHooks, MadviseIsAnEventWhereItDropsPages) {
  char* const p = map_pages(2);
  for (const int advice :
       {MADV_NORMAL, MADV_WILLNEED, MADV_SEQUENTIAL, MADV_DONTFORK, MADV_DOFORK, MADV_HUGEPAGE}) {
    watch(Range::of(p, 2 * page_));
    madvise(p, page_, advice);
    EXPECT_EQ(seen_ranges(), Ranges{}) << advice;
  }
  for (const int advice : {MADV_FREE, MADV_REMOVE, MADV_WIPEONFORK}) {
    watch(Range::of(p, 2 * page_));
    madvise(p, page_, advice);
    EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_)})) << advice;
  }
  std::memset(p, kContents, page_);
  watch(Range::of(p, 2 * page_), p);
  ASSERT_EQ(madvise(p, page_, MADV_DONTNEED), 0);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(p, page_));
  EXPECT_TRUE(events[0].intact);
  EXPECT_FALSE(events[1].intact);
  munmap(p, 2 * page_);
}

/// A file that only this process has, of so many pages.
class File {
 public:
  explicit File(std::size_t pages) : fd_(::memfd_create("pinion_test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(pages * page_size())), 0);
  }
  ~File() { ::close(fd_); }
  char* map(std::size_t first, std::size_t pages, void* at = nullptr, int flags = MAP_SHARED) const {
    void* const p =
        ::mmap(at, pages * page_size(), PROT_READ | PROT_WRITE, flags | (at == nullptr ? 0 : MAP_FIXED), fd_,
               static_cast<off_t>(first * page_size()));
    EXPECT_NE(p, MAP_FAILED);
    return static_cast<char*>(p);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

TEST_F(LibcHooks, FilesAreCutUnderTheirMappings) {
  const File file(8);
  const auto page = static_cast<off_t>(page_);
  char* const whole = file.map(0, 8);
  std::memset(whole, kContents, 8 * page_);
  const auto ranges_of = [&](auto&& call) {
    watch(Range::of(whole, 8 * page_));
    EXPECT_EQ(call(), 0);
    return seen_ranges();
  };
  EXPECT_EQ(ranges_of([&] { return ::ftruncate(file.fd(), 9 * page); }), Ranges{}) << "it grows";
  EXPECT_EQ(ranges_of([&] { return ::ftruncate(file.fd(), 9 * page); }), Ranges{}) << "it stays";
  EXPECT_EQ(ranges_of([&] { return ::ftruncate(file.fd(), 8 * page); }), Ranges{}) << "behind the mapping";
  EXPECT_EQ(ranges_of([&] { return ::ftruncate(file.fd(), 6 * page + 1); }),
            (Ranges{Range::of(whole + 7 * page_, page_)}))
      << "the page that is cut through stays";
  const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
  EXPECT_EQ(ranges_of([&] { return ::truncate(path.c_str(), 5 * page); }),
            (Ranges{Range::of(whole + 5 * page_, 3 * page_)}));
  EXPECT_EQ(ranges_of([&] { return ::fallocate(file.fd(), 0, 0, 8 * page); }), Ranges{}) << "it is filled";
  watch(Range::of(whole, 8 * page_), whole + page_);
  ASSERT_EQ(::fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, 2 * page), 0);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(whole + page_, 2 * page_));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
  munmap(whole, 8 * page_);
}

TEST_F(LibcHooks, AllMappingsOfAFileAreCut) {
  const File file(8);
  const auto page = static_cast<off_t>(page_);
  char* const place = map_pages(16);
  char* const first = file.map(2, 4, place);
  char* const second = file.map(4, 4, place + 6 * page_, MAP_PRIVATE);
  // Two mappings that follow each other: the kernel has one for each protection.
  ASSERT_EQ(::mprotect(first + 3 * page_, page_, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  watch({0, UINTPTR_MAX});
  ASSERT_EQ(::ftruncate(file.fd(), 4 * page), 0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(first + 2 * page_, 2 * page_), Range::of(second, 4 * page_)}));
  // More places than an event has ranges: all memory.
  ASSERT_EQ(::ftruncate(file.fd(), 8 * page), 0);
  char* const third = file.map(7, 1, place + 12 * page_);
  watch(Range::of(place, 16 * page_));
  ASSERT_EQ(::ftruncate(file.fd(), page), 0);
  const Ranges all = seen_ranges();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].contains(Range::of(first, 4 * page_)) && all[0].contains(Range::of(third, page_)));
  munmap(place, 16 * page_);
}

TEST_F(LibcHooks, FilesWithoutMappingsAreCutWithoutAnEvent) {
  const File file(4), mapped(4);
  char* const other = mapped.map(0, 4);
  watch({0, UINTPTR_MAX});
  EXPECT_EQ(::ftruncate(file.fd(), 0), 0);
  EXPECT_EQ(::ftruncate(-1, 0), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(::truncate("/nonexistent", 0), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(::ftruncate(mapped.fd(), -1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::fallocate(mapped.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(seen_ranges(), Ranges{});
  munmap(other, 4 * page_);
}

TEST_F(LibcHooks, BreakIsAnEventWhereItShrinks) {
  // Nothing may allocate from the heap in between.
  const auto bytes = static_cast<std::intptr_t>(4 * page_);
  watch({0, UINTPTR_MAX});
  char* const old_break = static_cast<char*>(sbrk(bytes));
  ASSERT_EQ(sbrk(0), old_break + bytes);
  const std::size_t growing = event_count;
  std::memset(old_break, kContents, static_cast<std::size_t>(bytes));
  probe = reinterpret_cast<Address>(old_break) + 3 * page_;
  const int shrunk = brk(old_break + page_);
  void* const now = sbrk(0);
  const void* const back = sbrk(-static_cast<std::intptr_t>(page_));
  void* const finally = sbrk(0);
  const std::vector<Event> events = seen();

  EXPECT_EQ(growing, 0u);
  EXPECT_EQ(shrunk, 0);
  EXPECT_EQ(now, old_break + page_);
  EXPECT_EQ(back, old_break + page_);
  EXPECT_EQ(finally, old_break);
  ASSERT_EQ(events.size(), 4u);
  const auto begin = reinterpret_cast<Address>(old_break);
  EXPECT_EQ(events[0].range, (Range{page_ceil(begin + page_), page_ceil(begin + 4 * page_)}));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
  EXPECT_EQ(events[2].range, (Range{page_ceil(begin), page_ceil(begin + page_)}));
}

TEST_F(LibcHooks, BreakThatCannotGrowFailsAsBefore) {
  void* const before = sbrk(0);
  errno = 0;
  EXPECT_EQ(brk(reinterpret_cast<void*>(std::uintptr_t{1} << 62)), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(sbrk(0), before);
  for (const std::intptr_t increment : {INTPTR_MAX, INTPTR_MIN}) {
    errno = 0;
    EXPECT_EQ(sbrk(increment), reinterpret_cast<void*>(-1));
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(sbrk(0), before);
  }
}

class Segment {
 public:
  explicit Segment(std::size_t bytes) : id_(shmget(IPC_PRIVATE, bytes, 0600)) {}
  ~Segment() { shmctl(id_, IPC_RMID, nullptr); }
  int id() const { return id_; }

 private:
  int id_;
};

TEST_F(LibcHooks, ShmdtKnowsTheSize) {
  const Segment segment(3 * page_ - 5);
  if (segment.id() < 0) GTEST_SKIP() << "no System V shared memory";
  char* const p = static_cast<char*>(shmat(segment.id(), nullptr, 0));
  char* const q = static_cast<char*>(shmat(segment.id(), nullptr, 0));
  ASSERT_NE(p, q);
  std::memset(p, kContents, 3 * page_ - 5);
  watch(Range::of(p, 3 * page_), p + 2 * page_);
  ASSERT_EQ(shmdt(p), 0);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(p, 3 * page_));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);

  // With a hole in the middle the kernel still finds both ends.
  munmap(q + page_, page_);
  watch(Range::of(q, 3 * page_));
  ASSERT_EQ(shmdt(q), 0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(q, 3 * page_)}));
  EXPECT_FALSE(is_resident(reinterpret_cast<Address>(q) + 2 * page_));

  watch({0, UINTPTR_MAX});
  EXPECT_EQ(shmdt(p), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(seen_ranges(), Ranges{});
}

TEST_F(LibcHooks, ShmatIsAnEventWhereItReplaces) {
  const Segment segment(2 * page_);
  if (segment.id() < 0) GTEST_SKIP() << "no System V shared memory";
  char* const p = map_pages(4);
  // Off huge-page alignment, so that the range is taken as it is.
  char* const at = p + page_ + (reinterpret_cast<Address>(p + page_) % (2 << 20) == 0 ? page_ : 0);
  watch(Range::of(p, 4 * page_), at);
  ASSERT_EQ(shmat(segment.id(), at + 7, SHM_REMAP | SHM_RND), at);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(at, 2 * page_));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
  munmap(p, 4 * page_);
}

TEST_F(LibcHooks, MprotectIsAnEventWhereItTakesRights) {
  char* const p = map_pages(3);
  constexpr int kBoth = PROT_READ | PROT_WRITE;
  for (const int less : {PROT_NONE, PROT_READ, PROT_WRITE, PROT_READ | PROT_EXEC}) {
    watch(Range::of(p, 3 * page_));
    ASSERT_EQ(mprotect(p + page_, page_ + 1, less), 0);
    EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p + page_, 2 * page_)})) << less;
    watch(Range::of(p, 3 * page_));
    ASSERT_EQ(mprotect(p, 3 * page_, kBoth), 0);
    EXPECT_EQ(seen_ranges(), Ranges{}) << less;
    watch(Range::of(p, 3 * page_));
    ASSERT_EQ(pkey_mprotect(p, page_, less, -1), 0);
    EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_)})) << less;
    watch(Range::of(p, 3 * page_));
    ASSERT_EQ(pkey_mprotect(p, page_, kBoth, -1), 0);
    EXPECT_EQ(seen_ranges(), Ranges{}) << less;
  }
  munmap(p, 3 * page_);
}

TEST_F(LibcHooks, RemappedFilePages) {
  const int file = memfd_create("pinion-test", 0);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(4 * page_)), 0);
  char* const p = static_cast<char*>(mmap(nullptr, 4 * page_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  ASSERT_NE(p, MAP_FAILED);
  std::memset(p, kContents, page_);
  watch(Range::of(p, 4 * page_), p);
  ASSERT_EQ(remap_file_pages(p, 2 * page_, 0, 2, 0), 0);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(p, 2 * page_));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  EXPECT_FALSE(events[1].is_begin || events[1].intact);
  munmap(p, 4 * page_);
  close(file);
}

TEST_F(LibcHooks, ProcessMadviseConcernsAllItsVectors) {
  void* const function = dlsym(RTLD_DEFAULT, "process_madvise");
  const auto advise = [&](int process, const iovec* vectors, std::size_t count, int advice) -> long {
    if (function == nullptr) return syscall(SYS_process_madvise, process, vectors, count, advice, 0);
    return reinterpret_cast<ssize_t (*)(int, const iovec*, std::size_t, int, unsigned)>(function)(
        process, vectors, count, advice, 0);
  };
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  ASSERT_GE(self, 0);
  constexpr std::size_t kVectors = 20;
  char* const p = map_pages(2 * kVectors);
  const Range all = Range::of(p, 2 * kVectors * page_);
  std::vector<iovec> vectors;
  for (std::size_t i = kVectors; i-- > 1;) vectors.push_back({p + 2 * i * page_, page_});
  watch(all, p + 2 * page_);
  const long advised = advise(self, vectors.data(), vectors.size(), MADV_DONTNEED);
  const std::vector<Event> events = seen();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].range, Range::of(p + 2 * page_, (2 * kVectors - 3) * page_));
  EXPECT_TRUE(events[0].is_begin && events[0].intact);
  // Kernels before 6.13 drop nothing in this way.
  EXPECT_EQ(events[1].intact, advised < 0);

  watch(all);
  advise(self, vectors.data(), vectors.size(), MADV_COLD);
  EXPECT_EQ(seen_ranges(), Ranges{});
  // Vectors that cannot be read, though their address can be taken for one.
  watch(all);
  EXPECT_EQ(advise(self, reinterpret_cast<const iovec*>(page_), 3, MADV_DONTNEED), -1);
  EXPECT_EQ(errno, EFAULT);
  const Ranges cautious = seen_ranges();
  ASSERT_EQ(cautious.size(), 1u);
  EXPECT_TRUE(cautious[0].contains(all));
  close(self);
  munmap(p, 2 * kVectors * page_);
}

}  // namespace
}  // namespace pinion::libc_hooks_test
