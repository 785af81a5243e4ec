// mmap, munmap and mremap of libpinion-heap.so: under `--preregister-mmaps`, large mappings lie in the arena
// (placement/arena.h), as blocks of the heap. These are private anonymous ones, readable and writable, at an
// address of the kernel's choice, without further flags. All others go on to libc, and so do all where the
// heap has no memory. libc's own mappings, such as stacks, never come by here. Pinion's own stay outside.
//
// clone, _Fork and syscall, too, whose children miss the handlers of forks: the heap's handlers run around
// them. madvise, for memory that the program keeps from its children.
//
// madvise, mprotect, mlock and their like, by name or by syscall(): the heap learns what they leave on
// blocks, and undoes it at free.
//
// prctl and syscall, for programs that filter their own system calls.
//
// Owns the pointers to libc's functions. Any thread. A signal handler that interrupts the heap goes to libc.
#include "intercept/malloc/mappings.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include "base/range.h"
#include "device/verbs/own_verbs_call.h"
#include "intercept/definitions.h"
#include "intercept/exports.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_process.h"
#include "monitor/system_call.h"
#include "placement/arena.h"
#include "placement/hugepage_heap.h"
#include "placement/kernel_pages.h"

namespace {

using pinion::Address;
using pinion::Range;

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kPlain = MAP_PRIVATE | MAP_ANONYMOUS;

constinit std::atomic<std::size_t> g_least{SIZE_MAX};
constinit Range g_engine;  ///< the code of libpinion.so; written before g_least

template <class Function>
using Next = pinion::FoundFunction<Function, pinion::definition_behind_preload>;

using Mmap = void*(void*, std::size_t, int, int, int, off_t);
using Munmap = int(void*, std::size_t);
using Mremap = void*(void*, std::size_t, std::size_t, int, ...);
constinit Next<Mmap> g_mmap{"mmap"};
constinit Next<Munmap> g_munmap{"munmap"};
constinit Next<Mremap> g_mremap{"mremap"};

/// Empty where the kernel would refuse.
Range whole_pages(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<Address>(address);
  return begin % pinion::page_size() == 0 ? Range{begin, pinion::page_ceil(begin + bytes)} : Range{};
}

void* no_memory() {
  errno = ENOMEM;
  return MAP_FAILED;
}

Range arena_part(Range range) {
  const Range arena = pinion::process_arena().range();
  return {std::max(arena.begin, range.begin), std::min(arena.end, range.end)};
}

/// Returns the result of `call`, which makes a mapping of the program's that replaces others. These may be
/// the arena's.
template <class Call>
void* replace(const void* address, std::size_t bytes, Call call) {
  const Range met = arena_part(Range::of(address, bytes).to_pages());
  if (met.empty()) return call();
  pinion::ProgramChanges& changes = pinion::process_arena().changes();
  const bool is_first = !changes.is_replaced(met);
  if (!pinion::process_heap().is_open())
    changes.note_replaced(met);
  else if (!pinion::process_heap().lay_over(met))
    return no_memory();  // memory there stays with another thread
  void* const mapped = call();
  if (mapped != MAP_FAILED || !is_first) return mapped;
  // The failed call has left the memory as it was, or has unmapped it. This only looks for a hole.
  const long hole =
      pinion::raw_system_call(SYS_msync, pinion::arguments_of(met.begin, met.bytes(), MS_ASYNC));
  if (hole == 0) changes.note_kept(met);
  return mapped;
}

/// MAP_FIXED_NOREPLACE: addresses of the arena are free where the program has nothing.
bool arena_gives_way(const void* address, std::size_t bytes, int flags) {
  const Range wanted = whole_pages(address, bytes);
  return (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE && (flags & MAP_HUGETLB) == 0 &&
         !wanted.empty() && pinion::process_arena().range().contains(wanted) &&
         pinion::process_heap().lay_over_free(wanted);
}

/// Maps memory for the code at `caller`.
void* map(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset, void* caller) {
  const bool plain = address == nullptr && protection == kReadWrite && flags == kPlain &&
                     static_cast<std::size_t>(offset) % pinion::page_size() == 0;
  if (plain && bytes >= g_least.load(std::memory_order_acquire) && !g_engine.contains(Range::of(caller, 1)))
      [[unlikely]]
    if (void* const memory = pinion::process_heap().map(bytes)) return memory;
  const bool replaces = (flags & MAP_FIXED) != 0 && (flags & MAP_FIXED_NOREPLACE) != MAP_FIXED_NOREPLACE;
  const auto by_libc = [&](int with) { return g_mmap.get()(address, bytes, protection, with, file, offset); };
  if (replaces) return replace(address, bytes, [&] { return by_libc(flags); });
  if (!arena_gives_way(address, bytes, flags)) return by_libc(flags);
  void* const mapped = by_libc((flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    pinion::process_heap().unmap(whole_pages(address, bytes));
    errno = error;
  }
  return mapped;
}

/// The heap ends its own memory; libc ends that beside the arena, and that of other blocks.
int unmap_parts(Range whole, Range inner) {
  const auto by_libc = [](Range part) {
    return part.empty() ? 0 : g_munmap.get()(reinterpret_cast<void*>(part.begin), part.bytes());
  };
  // First: the kernel refuses this part where the whole reaches beyond the address space.
  if (by_libc({inner.end, whole.end}) != 0) return -1;
  if (!pinion::process_heap().unmap(inner) && by_libc(inner) != 0) return -1;
  return by_libc({whole.begin, inner.begin});
}

/// Whether a copy is as good as the memory itself: what the program has laid over it is private, and of no
/// file.
bool is_copyable(Range range) {
  bool copyable = true;
  for (Range rest = range; copyable && !rest.empty();) {
    const Range run = pinion::process_arena().blocks().laid_over(rest);
    if (run.empty()) break;
    const bool listed = pinion::for_each_mapping(run, [&](const pinion::Mapping& mapping) {
      copyable = copyable && mapping.is_private && mapping.inode == 0;
    });
    copyable = copyable && listed;
    rest.begin = run.end;
  }
  return copyable;
}

/// Lets the kernel move what is wholly the program's. It goes aside first, for what leaves the arena at once
/// would leave a hole there.
void* move_by_kernel(Range old, std::size_t new_bytes, int flags, void* wanted) {
  constexpr int kKeepsAddresses = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
  void* const at = reinterpret_cast<void*>(old.begin);
  void* const anywhere = nullptr;
  void* const aside = g_mremap.get()(at, old.bytes(), old.bytes(), kKeepsAddresses, anywhere);
  if (aside == MAP_FAILED) return MAP_FAILED;
  const auto move = [&] { return g_mremap.get()(aside, old.bytes(), new_bytes, flags, wanted); };
  void* const moved = (flags & MREMAP_FIXED) != 0 ? replace(wanted, new_bytes, move) : move();
  const int error = errno;
  if (moved != MAP_FAILED)
    ::munmap(at, old.bytes());
  else
    g_mremap.get()(aside, old.bytes(), old.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, at);
  errno = error;
  return moved;
}

/// The kernel would leave a hole in the arena, so a copy moves. The kernel alone can move mappings of files,
/// and shared ones, which the program has laid over the heap's; it refuses ranges that have both.
void* move_mapping(Range old, std::size_t new_bytes, int flags, void* wanted) {
  const bool fixed = (flags & MREMAP_FIXED) != 0;
  if (!pinion::is_addressable(old.begin, new_bytes) || (fixed && (flags & MREMAP_MAYMOVE) == 0)) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  const Range kept{old.begin, std::min(old.end, old.begin + new_bytes)};
  if (!fixed && kept.bytes() == new_bytes) {
    if (kept.end != old.end) ::munmap(reinterpret_cast<void*>(kept.end), old.end - kept.end);
    return reinterpret_cast<void*>(old.begin);
  }
  if ((flags & MREMAP_MAYMOVE) == 0) return no_memory();
  if (fixed && old.overlaps(Range::of(wanted, new_bytes))) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (!is_copyable(old)) {
    if (pinion::process_arena().blocks().laid_over(old) == old)
      return move_by_kernel(old, new_bytes, flags, wanted);
    errno = EFAULT;
    return MAP_FAILED;
  }
  // An own one first: it then takes the wanted place as the kernel checks it.
  void* made = fixed ? g_mmap.get()(nullptr, new_bytes, kReadWrite, kPlain, -1, 0)
                     : ::mmap(nullptr, new_bytes, kReadWrite, kPlain, -1, 0);
  if (made == MAP_FAILED) return MAP_FAILED;
  const Range copy = Range::of(made, new_bytes);
  pinion::copy_unseen(kept, copy.begin);
  if (pinion::copy_rights_unseen(kept, copy) && !fixed) {
    // mprotect leaves them so.
    pinion::process_arena().changes().note_deprived(copy);
    pinion::process_heap().note_left(copy, pinion::HugepageHeap::Left::advice);
  }
  if (fixed) {
    void* const moved =
        replace(wanted, new_bytes, [&] { return g_mremap.get()(made, new_bytes, new_bytes, flags, wanted); });
    if (moved == MAP_FAILED) {
      const int error = errno;
      g_munmap.get()(made, new_bytes);
      errno = error;
      return MAP_FAILED;
    }
    made = moved;
  }
  ::munmap(reinterpret_cast<void*>(old.begin), old.bytes());
  return made;
}

// ---- children without handlers ----

using Clone = int(int (*)(void*), void*, int, void*, ...);
using Fork = pid_t();
using Syscall = long(long, long, long, long, long, long, long) noexcept;
constinit Next<Clone> g_clone{"clone"};
constinit Next<Fork> g_fork{"_Fork"};
constinit Next<Syscall> g_syscall{"syscall"};

/// `call` returns 0 in the child, where it returns at all.
template <class Call>
auto make_child(Call&& call) {
  pinion::HugepageHeap& heap = pinion::process_heap();
  const bool prepared = heap.before_other_child();
  const auto child = call(prepared);
  const int error = errno;
  if (prepared && child == 0)
    heap.after_fork_in_child();
  else if (prepared)
    heap.after_fork_in_parent();
  errno = error;
  return child;
}

/// The start of a child of clone, and the stack that it begins on, for its own may lie in hidden memory. It
/// has a copy of them. The heap's mutexes guard the parent's.
struct Beginning {
  int (*run)(void*);
  void* argument;
  void* stack;
};
constinit Beginning g_beginning{};
alignas(64) constinit char g_first_stack[64 << 10] = {};

[[noreturn]] void run_child() {
  const int status = g_beginning.run(g_beginning.argument);
  pinion::raw_system_call(SYS_exit, pinion::arguments_of(status));
  __builtin_unreachable();
}

int begin_child(void*) {
  pinion::process_heap().after_fork_in_child();
  constexpr std::size_t kFrames = 4096;  // makecontext looks at the end alone
  ucontext_t context;
  ::getcontext(&context);
  context.uc_stack.ss_sp = static_cast<char*>(g_beginning.stack) - kFrames;
  context.uc_stack.ss_size = kFrames;
  context.uc_link = nullptr;
  ::makecontext(&context, run_child, 0);
  ::setcontext(&context);
  return -1;
}

/// Whether the system call makes a child with a copy of the memory, which goes on behind the call. One that
/// begins on another stack never comes back here.
bool makes_child(long number, long first, long second) {
  switch (number) {
#ifdef SYS_fork
    case SYS_fork:
      return true;
#endif
    case SYS_clone:
      return (first & CLONE_VM) == 0 && second == 0;
    case SYS_clone3: {
      // Read by the kernel: a bad pointer of the caller's only fails its call.
      struct {
        std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack;
      } wanted{};
      return pinion::read_value(static_cast<pinion::Address>(first), wanted) &&
             (wanted.flags & CLONE_VM) == 0 && wanted.stack == 0;
    }
    default:
      return false;
  }
}

[[gnu::noinline]] long make_child_by_syscall(long number, long a, long b, long c, long d, long e,
                                             long f) noexcept {
  return make_child([&](bool) { return g_syscall.get()(number, a, b, c, d, e, f); });
}

constinit Next<int(int)> g_mlockall{"mlockall"};
constinit Next<int(void*, std::size_t, int)> g_madvise{"madvise"};

constinit Next<int()> g_munlockall{"munlockall"};
constinit Next<int(void*, std::size_t, int)> g_mprotect{"mprotect"};
constinit Next<int(void*, std::size_t, int, int)> g_pkey_mprotect{"pkey_mprotect"};
constinit Next<int(const void*, std::size_t)> g_mlock{"mlock"};
constinit Next<int(const void*, std::size_t, unsigned)> g_mlock2{"mlock2"};

// ---- what calls leave on blocks ----

using Left = pinion::HugepageHeap::Left;

/// Advice that outlives the contents. Hugepages are the heap's own advice.
bool stays(int advice) {
  constexpr int kGuardInstall = 102;  // MADV_GUARD_INSTALL
  switch (advice) {
    case MADV_DONTFORK:
    case MADV_WIPEONFORK:
    case MADV_DONTDUMP:
    case MADV_MERGEABLE:
    case MADV_NOHUGEPAGE:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case kGuardInstall:
      return true;
    default:
      return false;
  }
}

/// Notes what a call has left, unless it failed. Returns its result.
template <class Result>
Result noted(Result result, const void* address, std::size_t bytes, Left left) {
  if (result == 0 && bytes != 0) pinion::process_heap().note_left(Range::of(address, bytes), left);
  return result;
}

bool leaves_marks(long number) {
  return number == SYS_madvise || number == SYS_mprotect || number == SYS_pkey_mprotect ||
         number == SYS_mbind || number == SYS_mlock || number == SYS_mlock2;
}

[[gnu::noinline]] long leave_by_syscall(long number, long a, long b, long c, long d, long e,
                                        long f) noexcept {
  const long result = g_syscall.get()(number, a, b, c, d, e, f);
  if (number == SYS_madvise && !stays(static_cast<int>(c))) return result;
  const Left left = number == SYS_mlock || number == SYS_mlock2 ? Left::locks : Left::advice;
  return noted(result, reinterpret_cast<const void*>(a), static_cast<std::size_t>(b), left);
}

using Prctl = int(int, unsigned long, unsigned long, unsigned long, unsigned long);
constinit Next<Prctl> g_prctl{"prctl"};
constinit std::atomic<bool> g_filters{false};
void note_filter() { g_filters.store(true, std::memory_order_relaxed); }

}  // namespace

void pinion::serve_mappings(std::size_t least) {
  g_engine = segment_around(reinterpret_cast<const void*>(&pinion::process_heap));
  g_least.store(least, std::memory_order_release);
}

bool pinion::filters_system_calls() { return g_filters.load(std::memory_order_relaxed); }

extern "C" {

PINION_EXPORT void* mmap(void* address, std::size_t bytes, int protection, int flags, int file,
                         off_t offset) noexcept {
  return map(address, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

PINION_EXPORT void* mmap64(void* address, std::size_t bytes, int protection, int flags, int file,
                           off64_t offset) noexcept {
  return map(address, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

PINION_EXPORT int munmap(void* address, std::size_t bytes) noexcept {
  const Range whole = whole_pages(address, bytes), inner = arena_part(whole);
  if (!inner.empty()) [[unlikely]]
    return unmap_parts(whole, inner);
  return g_munmap.get()(address, bytes);
}

PINION_EXPORT int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) noexcept {
  va_list rest;
  va_start(rest, argument);
  void* const parent_tid = va_arg(rest, void*);  // the flags decide whether they count
  void* const tls = va_arg(rest, void*);
  void* const child_tid = va_arg(rest, void*);
  va_end(rest);
  const auto call = [&](int (*begin)(void*), void* with, void* on) {
    return g_clone.get()(begin, on, flags, with, parent_tid, tls, child_tid);
  };
  if ((flags & CLONE_VM) != 0) return call(run, argument, stack);
  return make_child([&](bool prepared) {
    if (!prepared || run == nullptr || stack == nullptr) return call(run, argument, stack);
    g_beginning = {run, argument, stack};
    return call(begin_child, nullptr, g_first_stack + sizeof g_first_stack);
  });
}

PINION_EXPORT pid_t _Fork() noexcept {
  return make_child([](bool) { return g_fork.get()(); });
}

/// Passes on six words like libc, however many the caller gave. It jumps to libc's, so that children with
/// shared memory return past it.
PINION_EXPORT long call_kernel(long number, long a, long b, long c, long d, long e, long f) noexcept
    __asm__("syscall");
long call_kernel(long number, long a, long b, long c, long d, long e, long f) noexcept {
  if (number == SYS_seccomp) [[unlikely]]
    note_filter();
  if (makes_child(number, a, b)) [[unlikely]]
    return make_child_by_syscall(number, a, b, c, d, e, f);
  if (leaves_marks(number)) [[unlikely]]
    return leave_by_syscall(number, a, b, c, d, e, f);
  return g_syscall.get()(number, a, b, c, d, e, f);
}

/// Passes on calls of a device's library: hiding a segment while it registers for Pinion is not the program's
/// wish.
PINION_EXPORT int madvise(void* address, std::size_t bytes, int advice) noexcept {
  const bool wish = !pinion::OwnVerbsCall::now();
  const Range common = arena_part(whole_pages(address, bytes));
  if (!common.empty()) [[unlikely]]
    pinion::process_arena().changes().advise(common, advice, wish);
  const int result = g_madvise.get()(address, bytes, advice);
  return wish && stays(advice) ? noted(result, address, bytes, Left::advice) : result;
}

PINION_EXPORT int mprotect(void* address, std::size_t bytes, int protection) noexcept {
  return noted(g_mprotect.get()(address, bytes, protection), address, bytes, Left::advice);
}

PINION_EXPORT int pkey_mprotect(void* address, std::size_t bytes, int protection, int key) noexcept {
  return noted(g_pkey_mprotect.get()(address, bytes, protection, key), address, bytes, Left::advice);
}

PINION_EXPORT int mlock(const void* address, std::size_t bytes) noexcept {
  return noted(g_mlock.get()(address, bytes), address, bytes, Left::locks);
}

PINION_EXPORT int mlock2(const void* address, std::size_t bytes, unsigned flags) noexcept {
  return noted(g_mlock2.get()(address, bytes, flags), address, bytes, Left::locks);
}

PINION_EXPORT int prctl(int operation, ...) noexcept {
  va_list rest;
  va_start(rest, operation);  // as libc has it: the operation decides how many count
  unsigned long words[4];
  for (unsigned long& word : words) word = va_arg(rest, unsigned long);
  va_end(rest);
  if (operation == PR_SET_SECCOMP) note_filter();
  return g_prctl.get()(operation, words[0], words[1], words[2], words[3]);
}

PINION_EXPORT int mlockall(int flags) noexcept {
  const int result = g_mlockall.get()(flags);
  if (result != 0) return result;
  pinion::process_arena().changes().note_locked_all();
  pinion::process_arena().changes().note_locks_future((flags & MCL_FUTURE) != 0);
  return result;
}

PINION_EXPORT int munlockall() noexcept {
  pinion::process_arena().changes().note_locks_future(false);
  return g_munlockall.get()();
}

PINION_EXPORT void* mremap(void* address, std::size_t old_bytes, std::size_t new_bytes, int flags,
                           ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const wanted = va_arg(rest, void*);  // the flags decide whether it counts
  va_end(rest);
  const Range old = whole_pages(address, old_bytes);
  if (!old.empty() && pinion::process_arena().range().contains(old) &&
      (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED)) == 0 && pinion::process_heap().has_mapping(old)) [[unlikely]]
    return move_mapping(old, pinion::page_ceil(new_bytes), flags, wanted);
  const auto by_libc = [&] { return g_mremap.get()(address, old_bytes, new_bytes, flags, wanted); };
  return (flags & MREMAP_FIXED) != 0 ? replace(wanted, new_bytes, by_libc) : by_libc();
}

}  // extern "C"
