#include "monitor/libc_hooks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "monitor/code_patch.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

namespace pinion {
namespace {

// ---- The functions, and the way down to the kernel
// -----------------------------------------------------------------

enum Function : std::size_t { kMunmap, kMmap, kMremap, kMadvise, kBrk, kSbrk, kShmat, kShmdt, kFunctions };

using Arguments = std::array<long, 6>;

struct Hook {
  const char* name;
  long system_call;
  bool returns_pointer;  ///< else int
  CodePatch patch{};
  Error refused{};                   ///< why there is no patch
  std::atomic<void*> next{nullptr};  ///< another library's replacement, called instead of the kernel
};

// Initialised by the compiler: a preload's constructor may install before this file's dynamic initialisation.
constinit Hook hooks[kFunctions] = {
    {"munmap", SYS_munmap, false},   {"mmap", SYS_mmap, true},    {"mremap", SYS_mremap, true},
    {"madvise", SYS_madvise, false}, {"brk", SYS_brk, false},     {"sbrk", SYS_brk, true},
    {"shmat", SYS_shmat, true},      {"shmdt", SYS_shmdt, false},
};

/// libc's idea of the break, which its sbrk starts from. Written before brk is patched.
void** libc_break = nullptr;
/// Size of the huge pages that MAP_HUGETLB means by default; 0: there are none.
std::size_t default_huge_page = 0;

/// Never by way of libc: its syscall() is safe, but sets errno, and errno belongs to the caller until the
/// end.
long raw_system_call(long number, const Arguments& arguments) {
  // Copied first: reading the array may be a function call (unoptimised, or instrumented), and would spoil
  // registers that are bound already.
  const long v0 = arguments[0], v1 = arguments[1], v2 = arguments[2];
  const long v3 = arguments[3], v4 = arguments[4], v5 = arguments[5];
#if defined(__x86_64__)
  register long a3 asm("r10") = v3;
  register long a4 asm("r8") = v4;
  register long a5 asm("r9") = v5;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(v0), "S"(v1), "d"(v2), "r"(a3), "r"(a4), "r"(a5)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = v0;
  register long x1 asm("x1") = v1;
  register long x2 asm("x2") = v2;
  register long x3 asm("x3") = v3;
  register long x4 asm("x4") = v4;
  register long x5 asm("x5") = v5;
  asm volatile("svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8) : "memory");
  return x0;
#endif
}

bool is_error(long result) { return static_cast<unsigned long>(result) > -4096UL; }

/// A call that another library's replacement was given. That library may know our entry as "the original" and
/// come back to it, so a call that is already on its way goes to the kernel.
struct Call {
  Function function;
  Arguments arguments;
  const Call* outer;  ///< interrupted by a signal handler's
};
thread_local const Call* chained_call = nullptr;

bool is_on_its_way(Function function, const Arguments& arguments) {
  for (const Call* call = chained_call; call != nullptr; call = call->outer) {
    if (call->function == function && call->arguments == arguments) return true;
  }
  return false;
}

/// Moves the break as libc does, which keeps its own record of it.
long move_break(Address target) {
  const auto result = static_cast<Address>(raw_system_call(SYS_brk, {static_cast<long>(target)}));
  *libc_break = reinterpret_cast<void*>(result);
  return result < target ? -ENOMEM : 0;
}

/// Where sbrk(increment) wants the break; nothing where that is no address.
std::optional<Address> incremented_break(std::intptr_t increment) {
  Address target;
  if (__builtin_add_overflow(reinterpret_cast<Address>(*libc_break), increment, &target)) return std::nullopt;
  return target;
}

/// The kernel's answer: a value or -errno.
long call_kernel(Function function, const Arguments& arguments) {
  if (function == kBrk) return move_break(static_cast<Address>(arguments[0]));
  if (function == kSbrk) {
    const long old_break = reinterpret_cast<long>(*libc_break);
    const auto target = incremented_break(arguments[0]);
    if (!target) return -ENOMEM;
    const long error = arguments[0] == 0 ? 0 : move_break(*target);
    return is_error(error) ? error : old_break;
  }
  return raw_system_call(hooks[function].system_call, arguments);
}

/// The other library's answer, turned into the kernel's form.
long call_chained(Function function, const Arguments& a, void* next) {
  const Call call{function, a, chained_call};
  chained_call = &call;
  const long result =
      reinterpret_cast<long (*)(long, long, long, long, long, long)>(next)(a[0], a[1], a[2], a[3],  //
                                                                           a[4], a[5]);
  chained_call = call.outer;
  const bool failed = hooks[function].returns_pointer ? result == -1 : static_cast<int>(result) == -1;
  if (failed) return -errno;
  return hooks[function].returns_pointer ? result : static_cast<int>(result);
}

// ---- The sink, and the self-test's eye
// ------------------------------------------------------------------------------

std::atomic<void (*)(Range)> sink_begin{nullptr};
std::atomic<void (*)(Range)> sink_end{nullptr};

/// Sees the last event that touches the watched range, on whichever thread.
class Watch {
 public:
  void start(Range range) {
    begun_.clear();
    ended_.clear();
    range_.set(range);
  }
  void stop() { range_.clear(); }
  void note_begin(Range r) {
    if (range_.get().overlaps(r)) begun_.set(r);
  }
  void note_end(Range r) {
    if (range_.get().overlaps(r)) ended_.set(r);
  }
  bool saw(Range r) const { return begun_.get() == r && ended_.get() == r; }
  bool saw_any() const { return !begun_.get().empty() && begun_.get() == ended_.get(); }
  Range last() const { return ended_.get(); }

 private:
  /// Written by one thread at a time as the self-test is built; atomic so that a stray reader is harmless.
  struct SharedRange {
    std::atomic<Address> begin{0}, end{0};
    void set(Range r) {
      begin.store(r.begin);
      end.store(r.end);
    }
    void clear() { set({}); }
    Range get() const { return {begin.load(), end.load()}; }
  };
  SharedRange range_, begun_, ended_;
};
Watch watch;

/// libc's form of the kernel's answer. A call that succeeds leaves errno as it was, whatever the sink did.
long to_libc(long result, int caller_errno) {
  errno = is_error(result) ? static_cast<int>(-result) : caller_errno;
  return is_error(result) ? -1 : result;
}

/// What every replacement does with its call.
long perform(Function function, const Arguments& arguments, Range first, Range second = {}) {
  if (is_on_its_way(function, arguments)) return to_libc(call_kernel(function, arguments), errno);

  const int caller_errno = errno;
  // install publishes end before begin, so whoever finds a begin has its end.
  const auto begin = sink_begin.load(std::memory_order_acquire);
  const auto end = sink_end.load(std::memory_order_relaxed);
  for (const Range& range : {first, second}) {
    if (range.empty()) continue;
    if (begin != nullptr) begin(range);
    watch.note_begin(range);
  }
  void* const next = hooks[function].next.load(std::memory_order_acquire);
  const long result =
      next == nullptr ? call_kernel(function, arguments) : call_chained(function, arguments, next);
  for (const Range& range : {second, first}) {
    if (range.empty()) continue;
    watch.note_end(range);
    if (begin != nullptr) end(range);
  }
  return to_libc(result, caller_errno);
}

// ---- Under ThreadSanitizer
// ------------------------------------------------------------------------------------------

#if defined(__SANITIZE_THREAD__)

/// libc's code. Written before the patches.
Range libc_code;

/// When libc drops an ended thread's stack, ThreadSanitizer has already taken leave of the thread, and
/// instrumented atomics (those of every sink) crash there. Its allocator is not libc's, so little else comes
/// from inside libc.
bool is_past_thread_end(const void* caller) { return libc_code.contains(Range::of(caller, 1)); }

void find_libc_code(const void* function) {
  const auto visit = [](dl_phdr_info* object, std::size_t, void* wanted) {
    for (const ElfW(Phdr)* segment = object->dlpi_phdr; segment != object->dlpi_phdr + object->dlpi_phnum;
         ++segment) {
      const Address begin = object->dlpi_addr + segment->p_vaddr;
      const Range range{begin, begin + segment->p_memsz};
      if (segment->p_type == PT_LOAD && range.contains(Range::of(wanted, 1))) libc_code = range;
    }
    return 0;
  };
  dl_iterate_phdr(visit, const_cast<void*>(function));
}

#else

constexpr bool is_past_thread_end(const void*) { return false; }

#endif

// ---- Which memory a call concerns
// -----------------------------------------------------------------------------------

template <class T>
long to_argument(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}

template <class... T>
Arguments arguments_of(T... values) {
  return {to_argument(values)...};
}

/// The pages of [address, address + length); empty where the kernel refuses: misaligned, of no length, beyond
/// the end.
Range whole_pages(const void* address, std::size_t length) {
  const Range range{reinterpret_cast<Address>(address),
                    page_ceil(reinterpret_cast<Address>(address) + length)};
  return range.begin % page_size() == 0 && !range.empty() ? range : Range{};
}

std::size_t round_up(std::size_t bytes, std::size_t granule) {
  return granule == 0 ? bytes : (bytes + granule - 1) / granule * granule;
}

/// The length that mmap will map: whole huge pages on hugetlbfs.
std::size_t mapped_length(std::size_t length, int flags, int fd) {
  if ((flags & MAP_ANONYMOUS) == 0) {
    struct statfs file_system;
    if (is_error(raw_system_call(SYS_fstatfs, arguments_of(fd, &file_system)))) return length;
    if (file_system.f_type != HUGETLBFS_MAGIC) return length;
    return round_up(length, static_cast<std::size_t>(file_system.f_bsize));
  }
  if ((flags & MAP_HUGETLB) == 0) return length;
  const unsigned shift = static_cast<unsigned>(flags) >> MAP_HUGE_SHIFT & MAP_HUGE_MASK;
  return round_up(length, shift == 0 ? default_huge_page : std::size_t{1} << shift);
}

bool drops_pages(int advice) {
  switch (advice) {
    case MADV_DONTNEED:
    case MADV_DONTNEED_LOCKED:
    case MADV_FREE:
    case MADV_REMOVE:
    case MADV_GUARD_INSTALL:
      return true;
    default:
      return false;
  }
}

/// What mremap takes away at the old place.
Range mremap_source(const void* address, std::size_t old_size, std::size_t new_size, int flags) {
  const Range source = whole_pages(address, old_size);
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) return source;
  const std::size_t kept = page_ceil(new_size);
  // A shrinking mapping never moves.
  if (kept < source.bytes()) return {source.begin + kept, source.end};
  return kept > source.bytes() && (flags & MREMAP_MAYMOVE) != 0 ? source : Range{};
}

/// The mapping that shmat(SHM_REMAP) will put over others.
Range attached_range(int id, const void* address, int flags) {
  struct shmid_ds segment;
  if (is_error(raw_system_call(SYS_shmctl, arguments_of(id, IPC_STAT, &segment)))) return {};
  auto begin = reinterpret_cast<Address>(address);
  if ((flags & SHM_RND) != 0) begin = page_floor(begin);
  // The segment does not say whether it is of huge pages; where it can be, assume it.
  const bool may_be_huge = default_huge_page != 0 && begin % default_huge_page == 0;
  return whole_pages(reinterpret_cast<void*>(begin),
                     round_up(segment.shm_segsz, may_be_huge ? default_huge_page : page_size()));
}

/// Reads the process's mappings without libc, in the little stack that a signal handler may have.
class MappingReader {
 public:
  struct Mapping {
    Range range;
    std::uint64_t offset = 0;
    std::uint64_t inode = 0;
    bool system_v = false;
  };

  // Not /proc/self: it is empty once the main thread has exited.
  MappingReader()
      : fd_(raw_system_call(SYS_openat,
                            arguments_of(AT_FDCWD, "/proc/thread-self/maps", O_RDONLY | O_CLOEXEC))) {
    if (is_open()) advance();
  }
  ~MappingReader() {
    if (is_open()) raw_system_call(SYS_close, arguments_of(fd_));
  }
  MappingReader(const MappingReader&) = delete;
  MappingReader& operator=(const MappingReader&) = delete;

  bool is_open() const { return !is_error(fd_); }

  /// One line: "begin-end perms offset major:minor inode   path".
  bool next(Mapping& mapping) {
    mapping.range.begin = number(16);
    mapping.range.end = number(16);
    skip_word();
    mapping.offset = number(16);
    skip_word();
    mapping.inode = number(10);
    while (current_ == ' ') advance();
    mapping.system_v = true;
    for (const char expected : {'/', 'S', 'Y', 'S', 'V'}) {
      mapping.system_v = mapping.system_v && current_ == expected;
      if (mapping.system_v) advance();
    }
    while (current_ != '\n' && current_ != kEnd) advance();
    if (current_ == kEnd) return false;
    advance();
    return true;
  }

 private:
  static constexpr int kEnd = -1;

  void advance() {
    if (at_ == filled_) {
      const long bytes = raw_system_call(SYS_read, arguments_of(fd_, buffer_, sizeof buffer_));
      filled_ = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
      at_ = 0;
    }
    current_ = filled_ == 0 ? kEnd : buffer_[at_++];
  }
  void skip_word() {
    while (current_ != ' ' && current_ != kEnd) advance();
    advance();
  }
  /// A number and the one character behind it.
  std::uint64_t number(unsigned base) {
    std::uint64_t value = 0;
    for (;; advance()) {
      unsigned digit = base;
      if (current_ >= '0' && current_ <= '9') digit = static_cast<unsigned>(current_ - '0');
      if (current_ >= 'a' && current_ <= 'f') digit = static_cast<unsigned>(current_ - 'a') + 10;
      if (digit >= base) break;
      value = value * base + digit;
    }
    advance();
    return value;
  }

  long fd_;
  int current_ = kEnd;
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  char buffer_[512];
};

/// What shmdt(address) unmaps: the pieces that still lie where attaching `address` has put them.
Range detached_range(const void* address) {
  const auto start = reinterpret_cast<Address>(address);
  MappingReader reader;
  // Without /proc nobody can say how far the segment goes.
  if (!reader.is_open()) return {start, page_floor(UINTPTR_MAX)};
  Range range{start, start};
  std::uint64_t segment = 0;
  for (MappingReader::Mapping mapping; reader.next(mapping);) {
    if (!mapping.system_v || mapping.range.begin < start || mapping.range.begin - start != mapping.offset)
      continue;
    if (!range.empty() && mapping.inode != segment) continue;
    segment = mapping.inode;
    range.end = mapping.range.end;
  }
  return range;
}

// ---- The replacements
// -----------------------------------------------------------------------------------------------

int replace_munmap(void* address, std::size_t length) {
  if (is_past_thread_end(__builtin_return_address(0))) {
    return static_cast<int>(to_libc(call_kernel(kMunmap, arguments_of(address, length)), errno));
  }
  return static_cast<int>(perform(kMunmap, arguments_of(address, length), whole_pages(address, length)));
}

void* replace_mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
  const bool replaces = (flags & MAP_FIXED) != 0 && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE;
  const Range over = replaces ? whole_pages(address, mapped_length(length, flags, fd)) : Range{};
  return reinterpret_cast<void*>(
      perform(kMmap, arguments_of(address, length, protection, flags, fd, offset), over));
}

void* replace_mremap(void* address, std::size_t old_size, std::size_t new_size, int flags, ...) {
  void* new_address = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list rest;
    va_start(rest, flags);
    new_address = va_arg(rest, void*);
    va_end(rest);
  }
  const Range destination = (flags & MREMAP_FIXED) != 0 ? whole_pages(new_address, new_size) : Range{};
  return reinterpret_cast<void*>(perform(kMremap,
                                         arguments_of(address, old_size, new_size, flags, new_address),
                                         mremap_source(address, old_size, new_size, flags), destination));
}

int replace_madvise(void* address, std::size_t length, int advice) {
  if (is_past_thread_end(__builtin_return_address(0))) {
    return static_cast<int>(to_libc(call_kernel(kMadvise, arguments_of(address, length, advice)), errno));
  }
  const Range dropped = drops_pages(advice) ? whole_pages(address, length) : Range{};
  return static_cast<int>(perform(kMadvise, arguments_of(address, length, advice), dropped));
}

/// The whole pages that a new break gives up; those that stay in part are not among them.
Range pages_above(Address new_break) {
  return {page_ceil(new_break), page_ceil(reinterpret_cast<Address>(*libc_break))};
}

int replace_brk(void* address) {
  // brk(nullptr) asks where the break is.
  const Range lost = address == nullptr ? Range{} : pages_above(reinterpret_cast<Address>(address));
  return static_cast<int>(perform(kBrk, arguments_of(address), lost));
}

/// libc's sbrk calls its brk, which would be enough; but another library's sbrk makes the system call itself.
void* replace_sbrk(std::intptr_t increment) {
  const auto target = incremented_break(increment);
  return reinterpret_cast<void*>(
      perform(kSbrk, arguments_of(increment), target ? pages_above(*target) : Range{}));
}

void* replace_shmat(int id, const void* address, int flags) {
  const Range over = (flags & SHM_REMAP) != 0 ? attached_range(id, address, flags) : Range{};
  return reinterpret_cast<void*>(perform(kShmat, arguments_of(id, address, flags), over));
}

int replace_shmdt(const void* address) {
  return static_cast<int>(perform(kShmdt, arguments_of(address), detached_range(address)));
}

const void* replacement_of(Function function) {
  const auto code_of = [](auto* replacement) { return reinterpret_cast<const void*>(replacement); };
  const void* const replacements[kFunctions] = {
      code_of(replace_munmap), code_of(replace_mmap), code_of(replace_mremap), code_of(replace_madvise),
      code_of(replace_brk),    code_of(replace_sbrk), code_of(replace_shmat),  code_of(replace_shmdt),
  };
  return replacements[function];
}

// ---- Installing
// -----------------------------------------------------------------------------------------------------

std::mutex control;       // guards all that follows
HookSink installed_sink;  // its begin is null while nothing is installed

/// libc itself: the search order of the program may name an interposer first.
void* libc_handle() {
  static void* const handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return handle;
}

std::size_t read_default_huge_page() {
  std::FILE* const file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  char line[128];
  unsigned long kilobytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr &&
         std::sscanf(line, "Hugepagesize: %lu", &kilobytes) != 1) {
  }
  std::fclose(file);
  return kilobytes * 1024;
}

/// Finds the variable that libc's brk and sbrk share. It may have been copied into the program, so here the
/// program's search order is the right one.
Error find_libc_break() {
  libc_break = static_cast<void**>(dlsym(RTLD_DEFAULT, "__curbrk"));
  if (libc_break != nullptr && *libc_break == nullptr) static_cast<void>(sbrk(0));
  if (libc_break == nullptr || to_argument(*libc_break) != raw_system_call(SYS_brk, {})) {
    return Error::make(ENOTSUP, "libc's record of the break (__curbrk) cannot be found");
  }
  return {};
}

/// What the replacements read, written once and before the first of them can run. Returns why brk cannot be
/// patched.
Error prepare() {
  static_cast<void>(page_size());
  default_huge_page = read_default_huge_page();
#if defined(__SANITIZE_THREAD__)
  if (libc_handle() != nullptr) find_libc_code(dlsym(libc_handle(), "munmap"));
#endif
  return find_libc_break();
}

/// Puts our patch at the function's entry, in front of whatever jump is there.
Error put_in_place(Hook& hook) {
  if (hook.patch.in_place()) return {};
  void* const function = libc_handle() == nullptr ? nullptr : dlsym(libc_handle(), hook.name);
  if (function == nullptr) return Error::make(ENOSYS, "libc.so.6 has no %s", hook.name);
  if (Error error = hook.patch.aim(function)) return error;
  // Before the patch, as the replacement may run at once.
  void* const previous = hook.next.exchange(hook.patch.displaced_target(), std::memory_order_acq_rel);
  Error error = hook.patch.apply(replacement_of(static_cast<Function>(&hook - hooks)));
  if (error) hook.next.store(previous, std::memory_order_release);
  return error;
}

HookReport summarize(std::vector<HookStatus> rows) {
  HookReport report;
  report.rows = std::move(rows);
  const auto failure = std::find_if(report.rows.begin(), report.rows.end(),
                                    [](const HookStatus& row) { return row.state == HookState::failed; });
  report.complete = failure == report.rows.end();
  if (!report.complete) {
    report.error = Error::make(failure->error.code, "%s: %.200s", failure->name, failure->error.message);
  }
  return report;
}

HookReport report_hooks() {
  std::vector<HookStatus> rows;
  for (const Hook& hook : hooks) {
    if (hook.patch.in_place()) {
      rows.push_back({hook.name, hook.next.load() == nullptr ? HookState::good : HookState::chained, {}});
    } else {
      rows.push_back(
          {hook.name, HookState::failed,
           hook.refused ? hook.refused : Error::make(EBUSY, "patched over by somebody else since")});
    }
  }
  return summarize(std::move(rows));
}

// ---- The self-test
// --------------------------------------------------------------------------------------------------

struct Outcome {
  HookState state = HookState::good;
  Error error;
};

Outcome skip(const char* reason) { return {HookState::skipped, Error::make(ENOTSUP, "%s", reason)}; }
Outcome fail(const char* what) {
  return {HookState::failed, Error::make(errno, "%s: %s", what, std::strerror(errno))};
}

/// The watched event must have arrived with exactly this range.
Outcome expect(Range range) {
  watch.stop();
  if (watch.saw(range)) return {};
  const Range last = watch.last();
  if (last.empty()) return {HookState::failed, Error::make(ENOMSG, "the event did not arrive")};
  return {HookState::failed, Error::make(EBADMSG, "the event arrived as [%#zx, %#zx) instead of [%#zx, %#zx)",
                                         last.begin, last.end, range.begin, range.end)};
}

/// For memory that its owner may keep: if the page is gone, its event must have arrived.
Outcome expect_if_lost(Range page) {
  watch.stop();
  unsigned char resident = 0;
  const bool mapped = mincore(reinterpret_cast<void*>(page.begin), page.bytes(), &resident) == 0;
  if (mapped && (resident & 1) != 0) return skip("the memory was kept");
  if (watch.saw_any()) return {};
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
  watch.start(Range::of(p, 2 * page));
  munmap(p, 2 * page);
  return expect(Range::of(p, 2 * page));
}

Outcome test_mmap_over() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(2);
  if (p == nullptr) return fail("mmap");
  watch.start(Range::of(p, 2 * page));
  mmap(p + page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  const Outcome outcome = expect(Range::of(p + page, page));
  munmap(p, 2 * page);
  return outcome;
}

Outcome test_mremap_move() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(3);
  if (p == nullptr) return fail("mmap");
  watch.start(Range::of(p, page));
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
  watch.start(Range::of(p, 3 * page));
  const bool shrunk = mremap(p, 3 * page, page, 0) == p;
  const Outcome outcome = expect(Range::of(p + page, 2 * page));
  munmap(p, shrunk ? page : 3 * page);
  return outcome;
}

Outcome test_mremap_destination() {
  const std::size_t page = page_size();
  std::byte* const from = map_pages(1);
  std::byte* const to = map_pages(1);
  if (from == nullptr || to == nullptr) return fail("mmap");
  watch.start(Range::of(to, page));
  const bool moved = mremap(from, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
  const Outcome outcome = expect(Range::of(to, page));
  munmap(to, page);
  if (!moved) munmap(from, page);
  return outcome;
}

Outcome test_madvise() {
  const std::size_t page = page_size();
  std::byte* const p = map_pages(2);
  if (p == nullptr) return fail("mmap");
  watch.start(Range::of(p, 2 * page));
  madvise(p, page, MADV_DONTNEED);
  const Outcome outcome = expect(Range::of(p, page));
  munmap(p, 2 * page);
  return outcome;
}

Outcome test_brk() {
  // Another thread's malloc may move the break between our growing and shrinking it.
  struct stat threads;
  if (stat("/proc/self/task", &threads) != 0 || threads.st_nlink != 3)
    return skip("other threads are running");
  const std::size_t bytes = 2 * page_size();
  void* const grown = sbrk(static_cast<std::intptr_t>(bytes));
  if (reinterpret_cast<std::intptr_t>(grown) == -1) return skip("the heap cannot grow");
  const auto begin = reinterpret_cast<Address>(grown);
  const Range lost{page_ceil(begin), page_ceil(begin + bytes)};
  watch.start(lost);
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
  watch.start(range);
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
  void* const at = reinterpret_cast<void*>(round_up(reinterpret_cast<Address>(p), alignment));
  const Range range = Range::of(at, 2 * page_size());
  watch.start(range);
  segment.attach(at, SHM_REMAP);
  watch.stop();
  const bool seen = watch.saw_any() && watch.last().contains(range);
  munmap(p, pages * page_size());
  return seen ? Outcome{} : expect(range);
}

constexpr std::size_t kLargeBlock = std::size_t{64}
                                    << 20;  // above every mmap threshold that glibc adapts itself to

/// The mapping of a block that glibc's malloc has mapped for itself; empty for every other block and
/// allocator.
Range own_mapping(Address block) {
  static const bool glibc_malloc =
      libc_handle() != nullptr && dlsym(RTLD_DEFAULT, "malloc") == dlsym(libc_handle(), "malloc");
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
  watch.start(mapping.empty() ? page : mapping);
  std::free(block);
  return mapping.empty() ? expect_if_lost(page) : expect(mapping);
}

Outcome test_realloc_grow() {
  void* const block = std::malloc(kLargeBlock);
  const Range mapping = block == nullptr ? Range{} : own_mapping(reinterpret_cast<Address>(block));
  watch.start(mapping);
  void* const grown = mapping.empty() ? nullptr : std::realloc(block, 2 * kLargeBlock);
  const Outcome outcome = mapping.empty() ? skip("malloc does not map large blocks itself") : expect(mapping);
  std::free(grown == nullptr ? block : grown);
  return outcome;
}

Outcome test_realloc_shrink() {
  void* const block = std::malloc(2 * kLargeBlock);
  const Range mapping = block == nullptr ? Range{} : own_mapping(reinterpret_cast<Address>(block));
  watch.start(mapping);
  void* const shrunk = mapping.empty() ? nullptr : std::realloc(block, kLargeBlock);
  const Outcome outcome = shrunk == nullptr
                              ? skip("malloc does not map large blocks itself")
                              : expect({own_mapping(reinterpret_cast<Address>(shrunk)).end, mapping.end});
  std::free(shrunk == nullptr ? block : shrunk);
  return outcome;
}

/// Uses stack well below the thread's first frames and tells where.
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
    watch.start(Range{*static_cast<Address*>(out), *static_cast<Address*>(out) + 1}.to_pages());
    return nullptr;
  };
  const int error = pthread_create(&thread, &attributes, body, &deepest);
  pthread_attr_destroy(&attributes);
  if (error != 0) return skip("no thread can be started");
  pthread_join(thread, nullptr);
  return expect_if_lost(Range{deepest, deepest + 1}.to_pages());
}

}  // namespace

HookReport install_libc_hooks(HookSink sink) {
  const std::lock_guard lock(control);
  if (installed_sink.begin != nullptr) {
    HookReport report = report_hooks();
    if (!(installed_sink == sink))
      report.error = Error::make(EBUSY, "another sink receives the memory events");
    return report;
  }
  static const Error no_break = prepare();
  installed_sink = sink;
  sink_end.store(sink.end, std::memory_order_relaxed);
  sink_begin.store(sink.begin, std::memory_order_release);
  for (Hook& hook : hooks) {
    const bool moves_break = hook.system_call == SYS_brk;
    hook.refused = moves_break && no_break ? no_break : put_in_place(hook);
  }
  return report_hooks();
}

HookReport reinstall_hooks() {
  const std::lock_guard lock(control);
  if (installed_sink.begin != nullptr) {
    for (Hook& hook : hooks) {
      if (hook.patch.is_applied()) hook.refused = put_in_place(hook);
    }
  }
  return report_hooks();
}

bool hooks_intact() {
  const std::lock_guard lock(control);
  return installed_sink.begin != nullptr &&
         std::all_of(std::begin(hooks), std::end(hooks),
                     [](const Hook& hook) { return !hook.patch.is_applied() || hook.patch.in_place(); });
}

HookReport self_test() {
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
      {"sbrk that shrinks", test_brk},
      {"shmdt", test_shmdt},
      {"shmat over a mapping", test_shmat_over},
      {"free of a large block", test_free},
      {"realloc that grows", test_realloc_grow},
      {"realloc that shrinks", test_realloc_shrink},
      {"thread exit", test_thread_exit},
  };
  const std::lock_guard lock(control);
  std::vector<HookStatus> rows;
  for (const Check& check : kChecks) {
    const Outcome outcome = check.run();
    rows.push_back({check.name, outcome.state, outcome.error});
  }
  return summarize(std::move(rows));
}

void uninstall_libc_hooks() {
  const std::lock_guard lock(control);
  installed_sink = {};
  sink_begin.store(nullptr, std::memory_order_release);
  for (Hook& hook : hooks) {
    // An error means that somebody's patch lies on top of ours; calls that reach us through it are passed on.
    static_cast<void>(hook.patch.restore());
  }
}

}  // namespace pinion
