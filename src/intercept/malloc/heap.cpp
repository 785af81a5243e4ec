// libpinion-heap.so: the functions of malloc, in front of the next allocator in line (libc's, or one that is
// preloaded). Blocks from the threshold on lie in the hugepage heap (placement/hugepage_heap.h); all else
// goes on, and so does every block of the next allocator. `pinion run --hugepages` and `--preregister`
// preload it. mappings.cpp has the functions of mmap. C++'s operators come by malloc, but for allocators that
// bring operators of their own.
//
// Owns the pointers to the next allocator's functions. They are found at the first call, which may come
// before any constructor; the heap is used from this library's constructor on. Any thread, and signal
// handlers as far as the next allocator stands them.
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "intercept/definitions.h"
#include "intercept/exports.h"
#include "intercept/malloc/mappings.h"
#include "intercept/same_build.h"
#include "lease/engine_options.h"
#include "monitor/own_process.h"
#include "placement/arena.h"
#include "placement/figures_file.h"
#include "placement/hugepage_heap.h"
#include "placement/kernel_pages.h"
#include "placement/static_data.h"

using pinion::HugepageHeap;

namespace {

// ---- the next allocator ----

void* find_malloc(std::size_t bytes);
void* find_calloc(std::size_t count, std::size_t bytes);
void* find_realloc(void* block, std::size_t bytes);
void find_free(void* block);
void* find_memalign(std::size_t alignment, std::size_t bytes);
int find_posix_memalign(void** out, std::size_t alignment, std::size_t bytes);
std::size_t find_usable_size(void* block);
int find_trim(std::size_t pad);
/// Debugging allocators need this: their blocks' sizes are unknown.
std::size_t no_usable_size(void*) { return 0; }

/// Each begins as a function that finds them all. Threads may find them at the same time: they find the same.
struct NextAllocator {
  std::atomic<decltype(&find_malloc)> malloc{find_malloc};
  std::atomic<decltype(&find_calloc)> calloc{find_calloc};
  std::atomic<decltype(&find_realloc)> realloc{find_realloc};
  std::atomic<decltype(&find_free)> free{find_free};
  std::atomic<decltype(&find_memalign)> memalign{find_memalign};
  std::atomic<decltype(&find_posix_memalign)> posix_memalign{find_posix_memalign};
  std::atomic<decltype(&find_usable_size)> usable_size{find_usable_size};
  std::atomic<decltype(&find_trim)> trim{find_trim};
};
constinit NextAllocator g_next;

template <class Function>
Function next(const std::atomic<Function>& function) {
  return function.load(std::memory_order_relaxed);
}

/// Prefers the object that has malloc, so that a block meets one allocator's functions alone. One that it
/// lacks is that of the next object that has it, as without this library.
template <class Function>
void find(std::atomic<Function>& function, const void* malloc_code, const char* name) {
  void* code = malloc_code != nullptr ? pinion::definition_beside(malloc_code, name) : nullptr;
  if (code == nullptr) code = pinion::first_definition(pinion::Where::behind_preload, name);
  if (code == nullptr) {
    constexpr const char* kMissing = "pinion: the next allocator lacks a function of malloc's family: ";
    for (const char* text : {kMissing, name, "\n"})
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
    std::abort();
  }
  function.store(reinterpret_cast<Function>(code), std::memory_order_relaxed);
}

/// Reads the symbol tables: dlsym() may allocate, and the preload shows one of its own.
void find_all() {
  const void* const code = pinion::first_definition(pinion::Where::behind_preload, "malloc");
  find(g_next.malloc, code, "malloc");
  find(g_next.calloc, code, "calloc");
  find(g_next.realloc, code, "realloc");
  find(g_next.free, code, "free");
  find(g_next.memalign, code, "memalign");
  find(g_next.posix_memalign, code, "posix_memalign");
  find(g_next.trim, code, "malloc_trim");
  // Another allocator's function would misread the block.
  if (pinion::definition_beside(code, "malloc_usable_size") == nullptr)
    g_next.usable_size.store(no_usable_size, std::memory_order_relaxed);
  else
    find(g_next.usable_size, code, "malloc_usable_size");
}

void* find_malloc(std::size_t bytes) {
  find_all();
  return next(g_next.malloc)(bytes);
}
void* find_calloc(std::size_t count, std::size_t bytes) {
  find_all();
  return next(g_next.calloc)(count, bytes);
}
void* find_realloc(void* block, std::size_t bytes) {
  find_all();
  return next(g_next.realloc)(block, bytes);
}
void find_free(void* block) {
  find_all();
  next(g_next.free)(block);
}
void* find_memalign(std::size_t alignment, std::size_t bytes) {
  find_all();
  return next(g_next.memalign)(alignment, bytes);
}
int find_posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  find_all();
  return next(g_next.posix_memalign)(out, alignment, bytes);
}
std::size_t find_usable_size(void* block) {
  find_all();
  return next(g_next.usable_size)(block);
}
int find_trim(std::size_t pad) {
  find_all();
  return next(g_next.trim)(pad);
}

// ---- the heap ----

/// Blocks of so many bytes lie in the heap; before start() none.
constinit std::atomic<std::size_t> g_threshold{SIZE_MAX};

/// The code of the next allocator, where it has C++'s operators: some of them allocate by the functions here,
/// and free by functions of their own. Written before the threshold.
constinit pinion::Range g_operators;

/// True for the code at `caller`.
bool is_for_operators(const void* caller) { return g_operators.contains(pinion::Range::of(caller, 1)); }

/// Growing blocks leave room behind them.
constinit std::atomic<bool> g_leaves_room{false};

bool is_large(std::size_t bytes) { return bytes >= g_threshold.load(std::memory_order_relaxed); }

bool is_of_heap(const void* block) {
  return reinterpret_cast<std::uintptr_t>(block) % pinion::kChunk == 0 && pinion::process_heap().owns(block);
}

/// Asks the next allocator: for a small block, or a large one that the heap has no memory for. If that fails
/// too, idle memory of the heap may be in its way.
template <class Allocate>
[[gnu::noinline, gnu::cold]] void* try_again(Allocate allocate) {
  return pinion::process_heap().relieve() ? allocate() : nullptr;
}

[[gnu::noinline]] void* large_malloc(std::size_t bytes) {
  void* const block = pinion::process_heap().allocate(bytes, 1, false);
  return block != nullptr ? block : next(g_next.malloc)(bytes);
}

[[gnu::noinline]] void* large_memalign(std::size_t alignment, std::size_t bytes) {
  return std::has_single_bit(alignment) ? pinion::process_heap().allocate(bytes, alignment, false) : nullptr;
}

/// Aligned memory for the code at `caller`.
void* align(std::size_t alignment, std::size_t bytes, const void* caller) {
  if (is_large(bytes) && !is_for_operators(caller)) [[unlikely]]
    if (void* const block = large_memalign(alignment, bytes)) return block;
  return next(g_next.memalign)(alignment, bytes);
}

/// A block of the heap, or a small one that has become large. Each move copies, so growth leaves room for the
/// next steps. In the arena that room would be registered.
[[gnu::noinline]] void* move(void* block, std::size_t bytes, std::size_t old_bytes) {
  HugepageHeap& heap = pinion::process_heap();
  const bool leaves_room = bytes > old_bytes && g_leaves_room.load(std::memory_order_relaxed);
  void* const moved = leaves_room ? heap.allocate_to_grow(bytes) : heap.allocate(bytes, 1, false);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, old_bytes));
  ::free(block);
  return moved;
}

/// A block of the next allocator. Null: it stays there.
[[gnu::noinline]] void* move_small(void* block, std::size_t bytes) {
  const std::size_t old_bytes = next(g_next.usable_size)(block);
  return old_bytes != 0 ? move(block, bytes, old_bytes) : nullptr;
}

[[gnu::noinline]] void* realloc_of_heap(void* block, std::size_t bytes) {
  HugepageHeap& heap = pinion::process_heap();
  if (bytes == 0) {
    heap.free(block);
    return nullptr;
  }
  if (heap.resize(block, bytes)) return block;
  const std::size_t old_bytes = heap.usable_bytes(block);
  if (void* const moved = move(block, bytes, old_bytes)) return moved;
  void* const moved = next(g_next.malloc)(bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(bytes, old_bytes));
  heap.free(block);
  return moved;
}

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

using SetLimit = int(__rlimit_resource_t, const rlimit*);
using ProcessLimit = int(pid_t, __rlimit_resource, const rlimit*, rlimit*);
constinit pinion::FoundFunction<SetLimit, pinion::definition_behind_preload> g_setrlimit{"setrlimit"};
constinit pinion::FoundFunction<ProcessLimit, pinion::definition_behind_preload> g_prlimit{"prlimit"};

/// The program has set a limit of its own: threads and mappings need the addresses of idle memory.
void note_limit(int resource) {
  if ((resource != RLIMIT_AS && resource != RLIMIT_DATA) || !pinion::has_address_limit()) return;
  g_leaves_room.store(false, std::memory_order_relaxed);
  pinion::process_heap().spare_addresses();
  pinion::process_heap().relieve();
}

int set_limit(__rlimit_resource_t resource, const rlimit* limit) {
  const int result = g_setrlimit.get()(resource, limit);
  if (result == 0) note_limit(static_cast<int>(resource));
  return result;
}

int set_process_limit(pid_t process, __rlimit_resource resource, const rlimit* limit, rlimit* before) {
  const int result = g_prlimit.get()(process, resource, limit, before);
  if (result == 0 && limit != nullptr) note_limit(static_cast<int>(resource));
  return result;
}

constexpr std::size_t kTeachingBlock = std::size_t{4} << 20;
constinit const char* g_log = nullptr;

[[gnu::constructor]] void start() {
  if (!pinion::same_build()) return;
  auto& options = *new pinion::Options;  // until the end
  if (pinion::options_from_environment(options) || options.off) return;
  const bool in_hugepages = options.hugepages == pinion::Hugepages::heap;
  if (!in_hugepages && options.preregister == 0) return;
  if (options.preregister != 0 && !pinion::process_arena().reserve(options.preregister, in_hugepages))
    say("pinion: the system has no addresses for the arena: blocks lie in ordinary memory\n");
  HugepageHeap& heap = pinion::process_heap();
  heap.use_shards(static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
  g_leaves_room.store(options.preregister == 0 && !pinion::has_address_limit(), std::memory_order_relaxed);
  if (pinion::has_address_limit()) heap.spare_addresses();
  pinion::look_for_transparent_pages();
  pinion::look_at_overcommit();
  pinion::make_later_calls_unseen();
  // Before most others, so that this one holds the mutexes while the fewest handlers run.
  ::pthread_atfork([] { pinion::process_heap().before_fork(); },
                   [] { pinion::process_heap().after_fork_in_parent(); },
                   [] { pinion::process_heap().after_fork_in_child(); });
  // glibc trims its heap at twice the largest mapped block that was freed, 128 KiB at first. Large blocks no
  // longer teach it, and small ones alone would have it trim and grow all the time.
  next(g_next.free)(next(g_next.malloc)(kTeachingBlock));
  if (options.hugepage_static) pinion::place_static_data();
  g_log = options.log.c_str();
  if (options.preregister_mmaps != 0) pinion::serve_mappings(options.preregister_mmaps);
  if (const auto code = reinterpret_cast<const void*>(next(g_next.malloc));
      pinion::definition_beside(code, "_Znwm") != nullptr)
    g_operators = pinion::segment_around(code);
  g_threshold.store(options.hugepage_threshold, std::memory_order_relaxed);
}

/// Under a filter of system calls, opening a file may end the process.
[[gnu::destructor]] void end() {
  if (g_log != nullptr && *g_log != '\0' && !pinion::filters_system_calls())
    pinion::write_placement_figures(g_log);
}

}  // namespace

extern "C" {

PINION_EXPORT void* malloc(std::size_t bytes) noexcept {
  if (is_large(bytes) && !is_for_operators(__builtin_return_address(0))) [[unlikely]]
    return large_malloc(bytes);
  void* const block = next(g_next.malloc)(bytes);
  if (block != nullptr) [[likely]]
    return block;
  return try_again([=] { return next(g_next.malloc)(bytes); });
}

PINION_EXPORT void free(void* block) noexcept {
  if (is_of_heap(block)) [[unlikely]]
    return pinion::process_heap().free(block);
  next(g_next.free)(block);
}

PINION_EXPORT void* calloc(std::size_t count, std::size_t bytes) noexcept {
  std::size_t whole = 0;
  if (!__builtin_mul_overflow(count, bytes, &whole) && is_large(whole)) [[unlikely]]
    if (void* const block = pinion::process_heap().allocate(whole, 1, true)) return block;
  return next(g_next.calloc)(count, bytes);
}

PINION_EXPORT void* realloc(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return ::malloc(bytes);
  if (is_of_heap(block)) return realloc_of_heap(block, bytes);
  if (is_large(bytes)) [[unlikely]]
    if (void* const moved = move_small(block, bytes)) return moved;
  return next(g_next.realloc)(block, bytes);
}

PINION_EXPORT void* reallocarray(void* block, std::size_t count, std::size_t bytes) noexcept {
  std::size_t whole = 0;
  if (!__builtin_mul_overflow(count, bytes, &whole)) return ::realloc(block, whole);
  errno = ENOMEM;
  return nullptr;
}

PINION_EXPORT int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) noexcept {
  if (is_large(bytes) && alignment % sizeof(void*) == 0 && !is_for_operators(__builtin_return_address(0)))
      [[unlikely]]
    if (void* const block = large_memalign(alignment, bytes)) {
      *out = block;
      return 0;
    }
  return next(g_next.posix_memalign)(out, alignment, bytes);
}

PINION_EXPORT void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return align(alignment, bytes, __builtin_return_address(0));
}

PINION_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return align(alignment, bytes, __builtin_return_address(0));
}

PINION_EXPORT void* valloc(std::size_t bytes) noexcept { return ::memalign(pinion::page_size(), bytes); }

PINION_EXPORT void* pvalloc(std::size_t bytes) noexcept {
  const std::size_t whole = pinion::page_ceil(bytes);
  if (whole >= bytes) return ::memalign(pinion::page_size(), whole);
  errno = ENOMEM;
  return nullptr;
}

PINION_EXPORT std::size_t malloc_usable_size(void* block) noexcept {
  return is_of_heap(block) ? pinion::process_heap().usable_bytes(block) : next(g_next.usable_size)(block);
}

PINION_EXPORT int setrlimit(__rlimit_resource_t resource, const rlimit* limit) noexcept {
  return set_limit(resource, limit);
}
PINION_EXPORT int setrlimit64(__rlimit_resource_t resource, const rlimit64* limit) noexcept {
  return set_limit(resource, reinterpret_cast<const rlimit*>(limit));
}
PINION_EXPORT int prlimit(pid_t process, __rlimit_resource resource, const rlimit* limit,
                          rlimit* before) noexcept {
  return set_process_limit(process, resource, limit, before);
}
PINION_EXPORT int prlimit64(pid_t process, __rlimit_resource resource, const rlimit64* limit,
                            rlimit64* before) noexcept {
  return set_process_limit(process, resource, reinterpret_cast<const rlimit*>(limit),
                           reinterpret_cast<rlimit*>(before));
}

PINION_EXPORT int malloc_trim(std::size_t pad) noexcept {
  const bool any = pinion::process_heap().relieve();
  return next(g_next.trim)(pad) != 0 || any ? 1 : 0;
}

}  // extern "C"
