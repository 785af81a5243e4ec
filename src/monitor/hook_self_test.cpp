#include "monitor/hook_self_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/loaded_objects.h"
#include "base/process_mutex.h"
#include "monitor/own_threads.h"
#include "monitor/system_call.h"
#include "monitor/userfault.h"

namespace pinion {

constinit EventWatch event_watch;

namespace {

constinit ProcessMutex testing;  // guards the eye too
Error (*watch_range)(Range) GUARDED_BY(testing) = nullptr;

/// The self-test's thread holds the mutex, by whose calls the events come.
void watch(Range range) NO_THREAD_SAFETY_ANALYSIS {
  // Memory that cannot be watched fails its test, which is enough.
  if (watch_range != nullptr) static_cast<void>(watch_range(range));
  wait_for_userfaultfd();  // events of the address's former memory may be under way still
  event_watch.start(range);
}

struct Outcome {
  HookState state = HookState::good;
  Error error;
};

Outcome skip(const char* reason) { return {HookState::skipped, Error::make(ENOTSUP, "%s", reason)}; }
Outcome fail(const char* what) {
  return {HookState::failed, Error::make(errno, "%s: %s", what, std::strerror(errno))};
}

/// Ends the watch after the call whose event is watched. The kernel's events may come, and their brackets
/// close, after it.
void stop_watching() {
  constexpr Duration kPatience = 100 * kMillisecond;
  wait_for_userfaultfd();
  const Time deadline = monotonic_now() + kPatience;
  while (event_watch.is_open() && monotonic_now() < deadline) sched_yield();
  event_watch.stop();
}

/// The watched event must have arrived with exactly this range.
Outcome expect(Range range) {
  stop_watching();
  if (event_watch.saw(range)) return {};
  const Range last = event_watch.last();
  if (last.empty()) return {HookState::failed, Error::make(ENOMSG, "the event did not arrive")};
  return {HookState::failed, Error::make(EBADMSG, "the event arrived as [%#zx, %#zx) instead of [%#zx, %#zx)",
                                         last.begin, last.end, range.begin, range.end)};
}

/// Checks memory that its owner may keep: if the page is gone, its event must have arrived.
Outcome expect_if_lost(Range page) {
  stop_watching();
  unsigned char resident = 0;
  const bool mapped = mincore(reinterpret_cast<void*>(page.begin), page.bytes(), &resident) == 0;
  if (mapped && (resident & 1) != 0) return skip("the memory was kept");
  if (event_watch.saw_any()) return {};
  return {HookState::failed, Error::make(ENOMSG, "memory went away without an event")};
}

std::byte* map_pages(std::size_t pages) {
  void* const start =
      mmap(nullptr, pages * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return start == MAP_FAILED ? nullptr : static_cast<std::byte*>(start);
}

Outcome test_munmap() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(2);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, 2 * page));
  munmap(p, 2 * page);
  return expect(Range::of(p, 2 * page));
}

Outcome test_mmap_over() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(2);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, 2 * page));
  mmap(p + page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  const Outcome outcome = expect(Range::of(p + page, page));
  munmap(p, 2 * page);
  return outcome;
}

Outcome test_mremap_move() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(3);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, page));
  // The pages behind it are taken, so it cannot grow where it is.
  void* const moved = mremap(p, page, 2 * page, MREMAP_MAYMOVE);
  const Outcome outcome = expect(Range::of(p, page));
  if (moved == MAP_FAILED) {
    munmap(p, 3 * page);
  } else {
    munmap(moved, 2 * page);
    munmap(p + page, 2 * page);
  }
  return outcome;
}

Outcome test_mremap_shrink() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(3);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, 3 * page));
  const bool shrunk = mremap(p, 3 * page, page, 0) == p;
  const Outcome outcome = expect(Range::of(p + page, 2 * page));
  munmap(p, shrunk ? page : 3 * page);
  return outcome;
}

Outcome test_mremap_destination() {
  // The page would move to an address that is anybody's: a library's, whose first page it replaces.
  if (others_replace_mremap()) return skip("another library's mremap may lose the destination");
  const std::size_t page = page_size();
  std::byte* const from = map_pages(1);
  std::byte* const to = map_pages(1);
  if (from == nullptr || to == nullptr) return fail("mmap");
  watch(Range::of(to, page));
  void* const moved = mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  const Outcome outcome = expect(Range::of(to, page));
  // Once each: what was moved lies at `to`, and what was unmapped may be another thread's at once.
  munmap(to, page);
  if (moved == MAP_FAILED) munmap(from, page);
  return outcome;
}

Outcome test_madvise() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(2);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, 2 * page));
  madvise(p, page, MADV_DONTNEED);
  const Outcome outcome = expect(Range::of(p, page));
  munmap(p, 2 * page);
  return outcome;
}

Outcome test_mprotect() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(2);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, 2 * page));
  mprotect(p, page, PROT_READ);
  const Outcome outcome = expect(Range::of(p, page));
  munmap(p, 2 * page);
  return outcome;
}

Outcome test_syscall() {
  std::byte* const p = map_pages(1);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, page_size()));
  syscall(SYS_munmap, p, page_size());
  return expect(Range::of(p, page_size()));
}

/// Invisible to replacements of libc's functions.
Outcome test_raw_munmap() {
  std::byte* const p = map_pages(1);
  if (p == nullptr) return fail("mmap");
  watch(Range::of(p, page_size()));
  raw_system_call(SYS_munmap, arguments_of(p, page_size()));
  const Outcome outcome = expect(Range::of(p, page_size()));
  if (!event_watch.last().empty()) return outcome;
  return {HookState::unclaimed, Error::make(ENOTSUP, "seen by userfaultfd alone")};
}

Outcome test_brk() {
  // Another thread's malloc may move the break between our growing and shrinking it.
  struct stat threads;
  if (stat("/proc/self/task", &threads) != 0 ||
      threads.st_nlink != static_cast<nlink_t>(3 + userfaultfd_threads() + keeper_threads()))
    return skip("other threads are running");
  const std::size_t bytes = 2 * page_size();
  void* const grown = sbrk(static_cast<std::intptr_t>(bytes));
  if (reinterpret_cast<std::intptr_t>(grown) == -1) return skip("the heap cannot grow");
  const auto begin = reinterpret_cast<Address>(grown);
  const Range lost{page_ceil(begin), page_ceil(begin + bytes)};
  watch(lost);
  static_cast<void>(sbrk(-static_cast<std::intptr_t>(bytes)));
  return expect(lost);
}

/// A System V segment of two pages, which vanishes with its last attachment.
class TestSegment {
 public:
  TestSegment() : id_(shmget(IPC_PRIVATE, 2 * page_size(), 0600)) {}
  ~TestSegment() {
    if (*this) shmctl(id_, IPC_RMID, nullptr);
  }
  TestSegment(const TestSegment&) = delete;
  TestSegment& operator=(const TestSegment&) = delete;
  explicit operator bool() const { return id_ >= 0; }
  void* attach(void* at, int flags) const {
    void* const start = shmat(id_, at, flags);
    return reinterpret_cast<std::intptr_t>(start) == -1 ? nullptr : start;
  }

 private:
  int id_;
};

Outcome test_shmdt() {
  const TestSegment segment;
  void* const start = segment ? segment.attach(nullptr, 0) : nullptr;
  if (start == nullptr) return skip("no System V shared memory here");
  const Range range = Range::of(start, 2 * page_size());
  watch(range);
  shmdt(start);
  return expect(range);
}

Outcome test_shmat_over() {
  const TestSegment segment;
  if (!segment) return skip("no System V shared memory here");
  // The attachment needs an address that serves the segment's alignment on every processor.
  const auto alignment = static_cast<std::size_t>(SHMLBA);
  const std::size_t pages = 2 + alignment / page_size();
  std::byte* const p = map_pages(pages);
  if (p == nullptr) return fail("mmap");
  void* const at =
      reinterpret_cast<void*>((reinterpret_cast<Address>(p) + alignment - 1) / alignment * alignment);
  const Range range = Range::of(at, 2 * page_size());
  watch(range);
  segment.attach(at, SHM_REMAP);
  stop_watching();
  const bool seen = event_watch.saw_any() && event_watch.last().contains(range);
  munmap(p, pages * page_size());
  return seen ? Outcome{} : expect(range);
}

constexpr std::size_t kLargeBlock = std::size_t{64}
                                    << 20;  // above every mmap threshold that glibc adapts itself to

/// The mapping of a block that glibc's malloc has mapped for itself; empty for every other block and
/// allocator.
Range own_mapping(Address block) {
  static const bool glibc_malloc = [] {
    const void* const malloc = c_library_function("malloc");
    return malloc != nullptr && malloc == dlsym(RTLD_DEFAULT, "malloc");
  }();
  if (!glibc_malloc) return {};
  // The two words before a block: the offset in the mapping (for a mapped chunk), and the size with flags.
  constexpr std::size_t kIsMapped = 2, kFlags = 7;
  const auto* const header = reinterpret_cast<const std::size_t*>(block) - 2;
  if ((header[1] & kIsMapped) == 0) return {};
  const Address begin = reinterpret_cast<Address>(header) - header[0];
  return {begin, begin + header[0] + (header[1] & ~kFlags)};
}

Outcome test_free() {
  void* const block = std::malloc(kLargeBlock);
  if (block == nullptr) return skip("no memory for a large block");
  std::byte* const middle = static_cast<std::byte*>(block) + kLargeBlock / 2;
  *const_cast<volatile std::byte*>(middle) = std::byte{1};
  const Range page = Range::of(middle, 1).to_pages();
  const Range mapping = own_mapping(reinterpret_cast<Address>(block));
  watch(mapping.empty() ? page : mapping);
  std::free(block);
  return mapping.empty() ? expect_if_lost(page) : expect(mapping);
}

Outcome test_realloc_grow() {
  void* const block = std::malloc(kLargeBlock);
  const Range mapping = block == nullptr ? Range{} : own_mapping(reinterpret_cast<Address>(block));
  watch(mapping);
  void* const grown = mapping.empty() ? nullptr : std::realloc(block, 2 * kLargeBlock);
  Outcome outcome = mapping.empty() ? skip("malloc does not map large blocks itself") : expect(mapping);
  // Hooks see it although no page was lost; the kernel reports no event.
  if (grown == block && outcome.state == HookState::failed) outcome = skip("it grew where it was");
  std::free(grown == nullptr ? block : grown);
  return outcome;
}

Outcome test_realloc_shrink() {
  void* const block = std::malloc(2 * kLargeBlock);
  const Range mapping = block == nullptr ? Range{} : own_mapping(reinterpret_cast<Address>(block));
  watch(mapping);
  void* const shrunk = mapping.empty() ? nullptr : std::realloc(block, kLargeBlock);
  const Outcome outcome = shrunk == nullptr
                              ? skip("malloc does not map large blocks itself")
                              : expect({own_mapping(reinterpret_cast<Address>(shrunk)).end, mapping.end});
  std::free(shrunk == nullptr ? block : shrunk);
  return outcome;
}

/// Uses stack well below the thread's first frames, and returns its place.
[[gnu::noinline]] void* use_deep_stack(void* deepest) {
  volatile std::byte frame[256 << 10];
  frame[0] = std::byte{1};
  *static_cast<Address*>(deepest) = reinterpret_cast<Address>(&frame[0]);
  return nullptr;
}

Outcome test_thread_exit() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  // Ample: libc carves static TLS out of it, and a program may have a megabyte of that.
  pthread_attr_setstacksize(&attributes, std::size_t{8} << 20);
  Address deepest = 0;
  pthread_t thread;
  const auto body = [](void* out) -> void* {
    use_deep_stack(out);
    watch(Range{*static_cast<Address*>(out), *static_cast<Address*>(out) + 1}.to_pages());
    return nullptr;
  };
  const int error = pthread_create(&thread, &attributes, body, &deepest);
  pthread_attr_destroy(&attributes);
  if (error != 0) return skip("no thread can be started");
  pthread_join(thread, nullptr);
  return expect_if_lost(Range{deepest, deepest + 1}.to_pages());
}

}  // namespace

HookReport test_memory_events(Error (*watch)(Range)) {
  const ProcessLock lock(testing);
  watch_range = watch;
  struct Check {
    const char* name;
    Outcome (*run)();
  };
  static constexpr Check kChecks[] = {
      {"munmap", test_munmap},
      {"mmap over a mapping", test_mmap_over},
      {"mremap that moves", test_mremap_move},
      {"mremap that shrinks", test_mremap_shrink},
      {"mremap onto a mapping", test_mremap_destination},
      {"madvise that drops pages", test_madvise},
      {"mprotect that takes rights", test_mprotect},
      {"sbrk that shrinks", test_brk},
      {"shmdt", test_shmdt},
      {"shmat over a mapping", test_shmat_over},
      {"munmap by syscall()", test_syscall},
      {"munmap without libc", test_raw_munmap},
      {"free of a large block", test_free},
      {"realloc that grows", test_realloc_grow},
      {"realloc that shrinks", test_realloc_shrink},
      {"thread exit", test_thread_exit},
  };
  std::vector<HookStatus> rows;
  for (const Check& check : kChecks) {
    const Outcome outcome = check.run();
    rows.push_back({check.name, outcome.state, outcome.error});
  }
  watch_range = nullptr;
  return summarize(std::move(rows));
}

HookReport summarize(std::vector<HookStatus> rows) {
  HookReport report;
  report.rows = std::move(rows);
  const auto failure = std::find_if(report.rows.begin(), report.rows.end(),
                                    [](const HookStatus& row) { return row.state == HookState::failed; });
  report.complete = failure == report.rows.end();
  if (!report.complete)
    report.error = Error::make(failure->error.code, "%s: %.200s", failure->name, failure->error.message);
  return report;
}

}  // namespace pinion
