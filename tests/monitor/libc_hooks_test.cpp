#include "monitor/libc_hooks.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
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
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "monitor/code_patch.h"
#include "monitor/system_call.h"
#include "support/eventually.h"
#include "support/foreign_patcher.h"

namespace pinion {

std::ostream& operator<<(std::ostream& out, const Range& r) {
  return out << std::hex << "[0x" << r.begin << ", 0x" << r.end << ")" << std::dec;
}

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kForeignAllocator = true;  // the sanitizers' allocators make their own system calls
#else
constexpr bool kForeignAllocator = false;
#endif

// ---- Callbacks that obey the hooks' law and remember the events of the memory of interest

struct Event {
  bool is_begin;
  Range range;
  bool intact;  ///< the probed page was there, with its contents
};

constexpr char kContents = 0x5a;
std::array<Event, 4096> events;
std::atomic<std::size_t> event_count{0};
std::atomic<Address> interest_begin{0}, interest_end{0};
std::atomic<Address> probe{0};
std::atomic<std::uint64_t> begins{0}, ends{0};
std::atomic<void (*)()> on_begin{nullptr};

bool is_resident(Address address) {
  unsigned char resident = 0;
  return mincore(reinterpret_cast<void*>(page_floor(address)), 1, &resident) == 0 && (resident & 1) != 0;
}

void remember(bool is_begin, Range range) {
  if (!range.overlaps({interest_begin.load(), interest_end.load()})) return;
  const Address at = probe.load();
  const bool intact = at != 0 && is_resident(at) && *reinterpret_cast<volatile char*>(at) == kContents;
  const std::size_t slot = event_count.fetch_add(1);
  if (slot < events.size()) events[slot] = {is_begin, range, intact};
}

Answer note_begin(const MemoryChange& change) {
  begins.fetch_add(1);
  remember(true, change.range);
  if (const auto action = on_begin.load()) action();
  errno = EDOM;  // a callback may spoil errno; callers must not see it
  return Answer::proceed;
}

void note_end(Range range) {
  ends.fetch_add(1);
  remember(false, range);
  errno = EDOM;
}

void watch(Range range, const void* probed = nullptr) {
  event_count = 0;
  probe = reinterpret_cast<Address>(probed);
  interest_begin = range.begin;
  interest_end = range.end;
}

/// The events since watch(); ends it.
std::vector<Event> seen() {
  interest_begin = interest_end = 0;
  return {events.begin(), events.begin() + std::min<std::size_t>(event_count, events.size())};
}

/// The ranges in the order of their begins, after checking that the brackets nest.
std::vector<Range> seen_ranges() {
  std::vector<Range> ranges, open;
  for (const Event& event : seen()) {
    if (event.is_begin) {
      ranges.push_back(event.range);
      open.push_back(event.range);
    } else {
      EXPECT_FALSE(open.empty());
      if (open.empty()) break;
      EXPECT_EQ(open.back(), event.range);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
  return ranges;
}

using Ranges = std::vector<Range>;

char* map_pages(std::size_t pages, int flags = 0) {
  void* const p =
      mmap(nullptr, pages * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  std::memset(p, kContents, pages * page_size());
  return static_cast<char*>(p);
}

class LibcHooks : public testing::Test {
 protected:
  void SetUp() override {
    begins = ends = 0;
    const HookReport report = install_libc_hooks({note_begin, note_end});
    ASSERT_TRUE(report.complete) << report.error.message;
  }
  void TearDown() override {
    on_begin = nullptr;
    seen();
    uninstall_libc_hooks();
    EXPECT_FALSE(hooks_intact());
  }
  const std::size_t page_ = page_size();
};

// ---- Installing ----

TEST_F(LibcHooks, PatchesEveryFunctionOnce) {
  const HookReport again = install_libc_hooks({note_begin, note_end});
  EXPECT_TRUE(again.complete);
  EXPECT_FALSE(again.error);
  ASSERT_EQ(again.rows.size(), 13u);
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

TEST_F(LibcHooks, SelfTestSeesEveryEvent) {
  const HookReport report = self_test();
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
  const HookReport report = self_test();
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

// ---- By number ----

TEST_F(LibcHooks, SyscallIsSeenLikeTheFunctions) {
  char* const p = map_pages(6);
  const Range all = Range::of(p, 6 * page_);
  const auto once = [&](const char* what, Range expected, long number, auto... arguments) {
    watch(all);
    EXPECT_NE(syscall(number, arguments...), -1) << what << ": " << std::strerror(errno);
    EXPECT_EQ(seen_ranges(), expected.empty() ? Ranges{} : Ranges{expected}) << what;
  };
  once("madvise", Range::of(p, page_), SYS_madvise, p, page_, MADV_DONTNEED);
  once("madvise that drops nothing", {}, SYS_madvise, p, page_, MADV_NORMAL);
  once("mprotect", Range::of(p, page_), SYS_mprotect, p, page_, PROT_READ);
  once("mprotect that adds", {}, SYS_mprotect, p, page_, PROT_READ | PROT_WRITE);
  once("pkey_mprotect", Range::of(p, page_), SYS_pkey_mprotect, p, page_, PROT_NONE, -1);
  once("mmap over", Range::of(p, page_), SYS_mmap, p, page_, PROT_READ,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  once("mmap elsewhere", {}, SYS_mmap, nullptr, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  once("mremap that shrinks", Range::of(p + 4 * page_, 2 * page_), SYS_mremap, p + 3 * page_, 3 * page_,
       page_, 0);
  once("mremap that moves", Range::of(p + 3 * page_, page_), SYS_mremap, p + 3 * page_, page_, 64 * page_,
       MREMAP_MAYMOVE);
  once("munmap", Range::of(p, page_), SYS_munmap, p, page_);
  munmap(p, 3 * page_);
  EXPECT_EQ(begins.load(), ends.load());
}

TEST_F(LibcHooks, SyscallSixthArgumentAndAnswer) {
  int words[2] = {5, 0};
  // Compares the first word with the sixth argument.
  errno = EXFULL;
  EXPECT_EQ(syscall(SYS_futex, &words[0], FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, &words[1], 5), 0);
  EXPECT_EQ(errno, EXFULL);
  EXPECT_EQ(syscall(SYS_futex, &words[0], FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 1, 1, &words[1], 6), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  EXPECT_EQ(syscall(100000), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(syscall(-1), -1);
  EXPECT_EQ(errno, ENOSYS);
  // The kernel looks at the lower half of the number.
  char* const p = map_pages(1);
  watch(Range::of(p, page_));
  EXPECT_EQ(syscall(SYS_munmap | long{1} << 32, p, page_), 0);
  EXPECT_EQ(seen_ranges(), (Ranges{Range::of(p, page_)}));
}

TEST_F(LibcHooks, SyscallThatMovesTheBreak) {
  const auto bytes = static_cast<std::intptr_t>(2 * page_);
  char* const old_break = static_cast<char*>(sbrk(bytes));
  const auto begin = reinterpret_cast<Address>(old_break);
  watch({begin, begin + 2 * page_});
  EXPECT_EQ(syscall(SYS_brk, 0), to_argument(old_break + bytes));
  EXPECT_EQ(syscall(SYS_brk, old_break), to_argument(old_break));
  EXPECT_EQ(brk(old_break), 0);  // libc's own record
  EXPECT_EQ(seen_ranges(), (Ranges{{page_ceil(begin), page_ceil(begin + 2 * page_)}}));
}

TEST_F(LibcHooks, ForkThroughSyscall) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer does not see this fork";
#endif
  const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    char* const p = static_cast<char*>(mmap(nullptr, page_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    _exit(munmap(p, page_) == 0 && begins.load() == ends.load() ? 7 : 1);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

#if defined(__x86_64__)
/// The child below comes out here: it has a stack of one word.
[[noreturn]] void exit_of_child() {
  for (;;) raw_system_call(SYS_exit, {9});
}

TEST_F(LibcHooks, ChildOfSyscallOnAStackOfItsOwn) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "an instrumented function needs more of its stack";
#endif
  // Returning from syscall() takes one word, the return address. A frame of the hook's would take more.
  alignas(16) void* stack[64] = {};
  stack[32] = reinterpret_cast<void*>(exit_of_child);
  const long child = syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, &stack[32], 0, 0, 0);
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(static_cast<pid_t>(child), &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}
#endif

// ---- Return values ----

TEST_F(LibcHooks, RefusalsAreTheKernels) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer's munmap takes its arguments for good";
#endif
  char* const p = map_pages(2);
  const long bad = -1;
  const long at = reinterpret_cast<long>(p), page = static_cast<long>(page_);
  const long anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  struct Case {
    const char* what;
    long number;
    std::array<long, 6> a;
  };
  const Case cases[] = {
      {"munmap misaligned", SYS_munmap, {at + 1, page}},
      {"munmap of nothing", SYS_munmap, {at, 0}},
      {"munmap beyond the end", SYS_munmap, {at, bad}},
      {"munmap wrapping to zero", SYS_munmap, {at, -at}},
      {"mmap of nothing", SYS_mmap, {0, 0, PROT_READ, anonymous, -1, 0}},
      {"mmap misaligned offset", SYS_mmap, {0, page, PROT_READ, anonymous, -1, 1}},
      {"mmap fixed misaligned", SYS_mmap, {at + 1, page, PROT_READ, anonymous | MAP_FIXED, -1, 0}},
      {"mmap fixed, bad descriptor", SYS_mmap, {at, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0}},
      {"mmap fixed, too long", SYS_mmap, {at, bad, PROT_READ, anonymous | MAP_FIXED, -1, 0}},
      {"mmap without a kind", SYS_mmap, {0, page, PROT_READ, MAP_ANONYMOUS, -1, 0}},
      {"mremap misaligned", SYS_mremap, {at + 1, page, page, 0}},
      {"mremap to nothing", SYS_mremap, {at, page, 0, 0}},
      {"mremap unknown flag", SYS_mremap, {at, page, page, 64}},
      {"mremap fixed that may not move", SYS_mremap, {at, page, page, MREMAP_FIXED, at + page}},
      {"mremap fixed misaligned", SYS_mremap, {at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, at + page + 1}},
      {"mremap fixed onto itself", SYS_mremap, {at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, at}},
      {"mremap that cannot grow", SYS_mremap, {at, page, long{1} << 46, 0}},
      {"mremap of unmapped memory", SYS_mremap, {page, page, 2 * page, MREMAP_MAYMOVE}},
      {"madvise misaligned", SYS_madvise, {at + 1, page, MADV_DONTNEED}},
      {"madvise unknown", SYS_madvise, {at, page, 9999}},
      {"madvise of unmapped memory", SYS_madvise, {page, page, MADV_DONTNEED}},
      {"madvise of nothing", SYS_madvise, {at, 0, MADV_DONTNEED}},
      {"madvise remove of private memory", SYS_madvise, {at, page, MADV_REMOVE}},
      {"shmat of no segment", SYS_shmat, {-1, 0, 0}},
      {"shmat over, of no segment", SYS_shmat, {-1, at, SHM_REMAP}},
      {"shmdt of no segment", SYS_shmdt, {at}},
      {"shmdt misaligned", SYS_shmdt, {at + 1}},
      {"mprotect misaligned", SYS_mprotect, {at + 1, page, PROT_READ}},
      {"mprotect of unmapped memory", SYS_mprotect, {page, page, PROT_READ}},
      {"mprotect of nothing", SYS_mprotect, {at, 0, PROT_NONE}},
      {"pkey_mprotect with no such key", SYS_pkey_mprotect, {at, page, PROT_READ, 77}},
      {"remap_file_pages of private memory", SYS_remap_file_pages, {at, page, 0, 0, 0}},
  };
  const auto by_libc = [](const Case& c) -> long {
    void* const address = reinterpret_cast<void*>(c.a[0]);
    const auto size = [&c](std::size_t i) { return static_cast<std::size_t>(c.a[i]); };
    const auto number = [&c](std::size_t i) { return static_cast<int>(c.a[i]); };
    switch (c.number) {
      case SYS_munmap:
        return munmap(address, size(1));
      case SYS_mmap:
        return reinterpret_cast<long>(mmap(address, size(1), number(2), number(3), number(4), c.a[5]));
      case SYS_mremap:
        return reinterpret_cast<long>(
            mremap(address, size(1), size(2), number(3), reinterpret_cast<void*>(c.a[4])));
      case SYS_madvise:
        return madvise(address, size(1), number(2));
      case SYS_mprotect:
        return mprotect(address, size(1), number(2));
      case SYS_pkey_mprotect:
        return pkey_mprotect(address, size(1), number(2), number(3));
      case SYS_remap_file_pages:
        return remap_file_pages(address, size(1), number(2), size(3), number(4));
      case SYS_shmat:
        return reinterpret_cast<long>(shmat(number(0), reinterpret_cast<void*>(c.a[1]), number(2)));
      default:
        return shmdt(address);
    }
  };
  for (const Case& c : cases) {
    const long kernels = raw_system_call(c.number, c.a);
    const long by_name_or_number[] = {
        (errno = 0, by_libc(c)), errno,
        (errno = 0, syscall(c.number, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5])), errno};
    for (const int i : {0, 2}) {
      EXPECT_EQ(by_name_or_number[i], is_error(kernels) ? -1 : kernels) << c.what;
      EXPECT_EQ(by_name_or_number[i + 1], is_error(kernels) ? -kernels : 0) << c.what;
    }
    EXPECT_EQ(begins.load(), ends.load()) << c.what;
  }
  EXPECT_EQ(p[0], kContents);
  munmap(p, 2 * page_);
}

TEST_F(LibcHooks, SuccessLeavesErrnoAlone) {
  char* const p = map_pages(2);
  errno = EXFULL;
  EXPECT_EQ(madvise(p, page_, MADV_DONTNEED), 0);
  EXPECT_EQ(munmap(p, 2 * page_), 0);
  EXPECT_EQ(errno, EXFULL);
}

TEST_F(LibcHooks, TheSameCodeIsCalledByBothNames) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  EXPECT_EQ(dlsym(libc, "mmap64"), dlsym(libc, "mmap"));
}

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

// ---- Other libraries' patches ----

using test::absolute_jump;
using test::ForeignPatch;
using test::ForeignPatcher;

std::atomic<int> foreign_calls{0};
int (*foreign_original)(void*, std::size_t) = nullptr;
bool foreign_uses_syscall = false;  ///< as UCX does, whose calls are seen even where it lies on top of us

int foreign_munmap(void* address, std::size_t length) {
  ++foreign_calls;
  if (foreign_original != nullptr) return foreign_original(address, length);
  if (foreign_uses_syscall) return static_cast<int>(syscall(SYS_munmap, address, length));
  const long result = raw_system_call(SYS_munmap, arguments_of(address, length));
  if (is_error(result)) errno = static_cast<int>(-result);
  return is_error(result) ? -1 : 0;
}

class PatchedByOthers : public testing::Test {
 protected:
  void SetUp() override {
    foreign_calls = 0;
    foreign_original = nullptr;
    foreign_uses_syscall = false;
  }
  void TearDown() override { uninstall_libc_hooks(); }

  void install() { ASSERT_TRUE(install_libc_hooks({note_begin, note_end}).complete); }

  /// One munmap through libc; how often the callbacks and the other library saw it.
  void expect_one_munmap(std::size_t brackets, int foreign) {
    char* const p = map_pages(1);
    watch(Range::of(p, page_size()));
    foreign_calls = 0;
    EXPECT_EQ(munmap(p, page_size()), 0);
    EXPECT_EQ(seen_ranges(), Ranges(brackets, Range::of(p, page_size())));
    EXPECT_EQ(foreign_calls, foreign);
    EXPECT_EQ(munmap(p + 1, page_size()), -1);
    EXPECT_EQ(errno, EINVAL);
  }

  ForeignPatcher other_;
};

TEST_F(PatchedByOthers, BeforeUs) {
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  const HookReport report = install_libc_hooks({note_begin, note_end});
  EXPECT_TRUE(report.complete);
  EXPECT_EQ(report.rows[0].state, HookState::chained);
  EXPECT_EQ(report.rows[1].state, HookState::good);
  expect_one_munmap(1, 1);
  uninstall_libc_hooks();
  EXPECT_EQ(jump_target(static_cast<std::byte*>(other_.entry())), reinterpret_cast<void*>(foreign_munmap));
  expect_one_munmap(0, 1);
}

TEST_F(PatchedByOthers, AfterUs) {
  install();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  EXPECT_FALSE(hooks_intact());
  expect_one_munmap(0, 1);

  const HookReport report = reinstall_hooks();
  EXPECT_TRUE(report.complete) << report.error.message;
  EXPECT_EQ(report.rows[0].state, HookState::chained);
  EXPECT_TRUE(hooks_intact());
  expect_one_munmap(1, 1);
  EXPECT_TRUE(self_test().rows[0].state == HookState::good);
}

TEST_F(PatchedByOthers, WhoThenUseSyscall) {
  foreign_uses_syscall = true;
  install();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  expect_one_munmap(1, 1);  // theirs, then ours by number
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_one_munmap(1, 1);  // ours, theirs, and ours by number within the same bracket
}

TEST_F(PatchedByOthers, AfterUsAndKeepingUsAsTheOriginal) {
  install();
  foreign_original = reinterpret_cast<int (*)(void*, std::size_t)>(jump_target(other_.code()));
  ASSERT_NE(foreign_original, nullptr);
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  expect_one_munmap(1, 1);  // theirs, then ours
  EXPECT_FALSE(hooks_intact());
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_one_munmap(1, 1);  // ours, theirs, and ours again, which must not go round
}

std::atomic<int> moves_elsewhere{0};

/// Behaves like UCX: the destination is lost, and the kernel takes another one.
void* foreign_mremap(void* address, std::size_t old_size, std::size_t new_size, int flags) {
  if ((flags & MREMAP_FIXED) != 0) {
    ++moves_elsewhere;
    return MAP_FAILED;
  }
  const long result = raw_system_call(SYS_mremap, arguments_of(address, old_size, new_size, flags));
  return is_error(result) ? MAP_FAILED : reinterpret_cast<void*>(result);
}

// The self-test's page would land on memory of the program's.
TEST_F(PatchedByOthers, TheSelfTestMovesNothingWhereDestinationsAreLost) {
  const auto outcome = [] {
    for (const HookStatus& row : self_test().rows)
      if (std::string(row.name) == "mremap onto a mapping") return row.state;
    return HookState::failed;
  };
  for (const bool before : {true, false}) {
    ForeignPatcher patcher("mremap");
    if (before) patcher.write(absolute_jump(reinterpret_cast<void*>(foreign_mremap)));
    install();
    if (!before) {
      EXPECT_EQ(outcome(), HookState::good);
      patcher.write(absolute_jump(reinterpret_cast<void*>(foreign_mremap)));
      EXPECT_EQ(outcome(), HookState::skipped) << "theirs alone";
      ASSERT_TRUE(reinstall_hooks().complete);
    }
    EXPECT_EQ(outcome(), HookState::skipped) << "ours, and theirs next";
    uninstall_libc_hooks();
  }
  EXPECT_EQ(moves_elsewhere, 0);
}

long foreign_syscall(long number, long a0, long a1, long a2, long a3, long a4, long a5) {
  ++foreign_calls;
  const long result = raw_system_call(number, {a0, a1, a2, a3, a4, a5});
  if (!is_error(result)) return result;
  errno = static_cast<int>(-result);
  return -1;
}

TEST_F(PatchedByOthers, SyscallIsLeftToThem) {
  ForeignPatcher patcher("syscall");
  patcher.write(absolute_jump(reinterpret_cast<void*>(foreign_syscall)));
  const HookReport report = install_libc_hooks({note_begin, note_end});
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.error.code, EBUSY) << report.error.message;
  EXPECT_STREQ(report.rows.back().name, "syscall");
  EXPECT_EQ(report.rows.back().state, HookState::failed);
  foreign_calls = 0;
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  EXPECT_EQ(foreign_calls, 1);
  EXPECT_FALSE(self_test().complete);
}

std::atomic<int> exposures{0};

TEST_F(PatchedByOthers, SeenBeforeTheyWrite) {
  exposures = 0;
  ASSERT_TRUE(install_libc_hooks({note_begin, note_end, [] { ++exposures; }}).complete);
  EXPECT_EQ(exposures, 0) << "our own patching is none";
  EXPECT_FALSE(hooks_exposed());
  other_.open();
  EXPECT_EQ(exposures, 1);
  EXPECT_TRUE(hooks_exposed());
  EXPECT_TRUE(hooks_intact());
  other_.close();
  EXPECT_FALSE(hooks_exposed());

  // This calls by number, with another page than any of ours.
  const Range code = Range::of(other_.entry(), 1).to_pages();
  void* const start = reinterpret_cast<void*>(code.begin);
  exposures = 0;
  ASSERT_EQ(syscall(SYS_mprotect, start, code.bytes(), PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_EQ(exposures, 1);
  EXPECT_TRUE(hooks_exposed());
  ASSERT_EQ(syscall(SYS_mprotect, start, code.bytes(), PROT_READ | PROT_EXEC), 0);
  EXPECT_FALSE(hooks_exposed());
  exposures = 0;
  char* const elsewhere = map_pages(1);
  ASSERT_EQ(mprotect(elsewhere, page_size(), PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_EQ(exposures, 0);
  munmap(elsewhere, page_size());

  // A refused call exposes nothing for long.
  EXPECT_EQ(mprotect(static_cast<char*>(start) + 1, 1, PROT_READ | PROT_WRITE), -1);
  EXPECT_FALSE(hooks_exposed());
}

TEST_F(PatchedByOthers, AfterUsAndRemovedAgain) {
  install();
  const ForeignPatch ours = other_.read();
  other_.write(absolute_jump(reinterpret_cast<void*>(foreign_munmap)));
  EXPECT_FALSE(hooks_intact());
  other_.write(ours);
  EXPECT_TRUE(hooks_intact());
  expect_one_munmap(1, 0);
}

TEST_F(PatchedByOthers, RestoringTheOriginalCode) {
  const ForeignPatch original = other_.read();
  install();
  other_.write(original);
  EXPECT_FALSE(hooks_intact());
  ASSERT_TRUE(reinstall_hooks().complete);
  expect_one_munmap(1, 0);
}

TEST_F(PatchedByOthers, UninstallLeavesTheirsOnTop) {
  install();
  const ForeignPatch theirs = absolute_jump(reinterpret_cast<void*>(foreign_munmap));
  other_.write(theirs);
  uninstall_libc_hooks();
  EXPECT_EQ(other_.read(), theirs);
  expect_one_munmap(0, 1);
}

#if defined(__x86_64__)

TEST_F(PatchedByOthers, InAFormThatIsNotKnown) {
  install();
  ForeignPatch unknown = other_.read();
  const unsigned char code[] = {0xb8, 0x0b, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xc3};  // mov eax, 11; syscall; ret
  std::memcpy(unknown.data(), code, sizeof code);
  other_.write(unknown);
  const HookReport report = reinstall_hooks();
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.rows[0].state, HookState::failed);
  EXPECT_EQ(report.error.code, ENOTSUP) << report.error.message;
  EXPECT_EQ(other_.read(), unknown);
  EXPECT_FALSE(hooks_intact());
}

TEST(JumpTarget, KnowsTheFormsThatPatchersWrite) {
  std::array<unsigned char, 24> code{};
  const auto target = [&code] { return jump_target(reinterpret_cast<const std::byte*>(code.data())); };
  const auto absolute = reinterpret_cast<void*>(0x123456789abcdef0);
  EXPECT_EQ(target(), nullptr);

  code = {0x49, 0xbb, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0x41, 0xff, 0xe3};  // mov r11; jmp r11
  EXPECT_EQ(target(), absolute);
  code[12] = 0xe2;  // jmp r10
  EXPECT_EQ(target(), nullptr);
  code = {0x48, 0xb8, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, 0xff, 0xe0};  // mov rax; jmp rax
  EXPECT_EQ(target(), absolute);
  code = {0xe9, 0xf0, 0xff, 0xff, 0xff};  // jmp -16
  EXPECT_EQ(reinterpret_cast<Address>(target()), reinterpret_cast<Address>(code.data()) + 5 - 16);
  code = {0xff, 0x25, 0x02, 0, 0, 0, 0, 0, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12};  // jmp [rip + 2]
  EXPECT_EQ(target(), absolute);
  code = {0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05};  // mov eax, 11; syscall
  EXPECT_EQ(target(), nullptr);
}

#endif

}  // namespace
}  // namespace pinion
