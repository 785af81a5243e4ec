#include "monitor/libc_hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "monitor/code_patch.h"
#include "monitor/hook_self_test.h"
#include "monitor/libc_replacements.h"
#include "monitor/memory_calls.h"
#include "monitor/syscall_entry.h"
#include "monitor/system_call.h"

namespace pinion {
namespace {

// ---- The functions, and the way down to the kernel ----

enum Function : std::size_t {
  kMunmap,
  kMmap,
  kMremap,
  kMadvise,
  kBrk,
  kSbrk,
  kShmat,
  kShmdt,
  kMprotect,
  kPkeyMprotect,
  kRemapFilePages,
  kProcessMadvise,
  kSyscall,
  kFunctions
};

using Arguments = SystemCallArguments;

struct Hook {
  const char* name;
  long system_call;
  bool returns_word;  ///< a pointer or a size; else int
  CodePatch patch{};
  Error refused{};                   ///< why there is no patch
  std::atomic<void*> next{nullptr};  ///< another library's replacement, called instead of the kernel
};

// Initialised by the compiler: a preload's constructor may install before this file's dynamic initialisation.
constinit Hook hooks[kFunctions] = {
    {"munmap", SYS_munmap, false},
    {"mmap", SYS_mmap, true},
    {"mremap", SYS_mremap, true},
    {"madvise", SYS_madvise, false},
    {"brk", SYS_brk, false},
    {"sbrk", SYS_brk, true},
    {"shmat", SYS_shmat, true},
    {"shmdt", SYS_shmdt, false},
    {"mprotect", SYS_mprotect, false},
    {"pkey_mprotect", SYS_pkey_mprotect, false},
    {"remap_file_pages", SYS_remap_file_pages, false},
    {"process_madvise", SYS_process_madvise, true},
    {"syscall", -1, true},
};

/// libc's idea of the break, which its sbrk starts from. It may have been copied into the program; the linker
/// knows.
extern "C" [[gnu::weak]] void* __curbrk;
void* libc_break() {
  if (__curbrk == nullptr) __curbrk = reinterpret_cast<void*>(raw_system_call(SYS_brk, {}));
  return __curbrk;
}

/// A call that another library's replacement was given. That library may call our entry as "the original";
/// such a nested call goes to the kernel. Or it makes the system call by syscall(), within the brackets that
/// are open already.
struct Call {
  Function function;
  Arguments arguments;
  ConcernedMemory memory;
  const Call* outer;  ///< interrupted by a signal handler's
};
thread_local const Call* chained_call = nullptr;

bool is_on_its_way(Function function, const Arguments& arguments) {
  for (const Call* call = chained_call; call != nullptr; call = call->outer) {
    if (call->function == function && call->arguments == arguments) return true;
  }
  return false;
}

bool is_bracketed(const ConcernedMemory& memory) {
  for (const Call* call = chained_call; call != nullptr; call = call->outer) {
    if (call->memory.contains(memory)) return true;
  }
  return false;
}

/// Moves the break as libc does, which keeps its own record of it.
long move_break(Address target) {
  const auto result = static_cast<Address>(raw_system_call(SYS_brk, arguments_of(target)));
  __curbrk = reinterpret_cast<void*>(result);
  return result < target ? -ENOMEM : 0;
}

/// Returns the break that sbrk(increment) wants; empty where that lies outside of the address space.
std::optional<Address> incremented_break(std::intptr_t increment) {
  Address target;
  if (__builtin_add_overflow(reinterpret_cast<Address>(libc_break()), increment, &target))
    return std::nullopt;
  return target;
}

/// The kernel's answer: a value or -errno.
long call_kernel(Function function, const Arguments& arguments) {
  if (function == kBrk) return move_break(static_cast<Address>(arguments[0]));
  if (function == kSbrk) {
    const long old_break = reinterpret_cast<long>(libc_break());
    const auto target = incremented_break(arguments[0]);
    if (!target) return -ENOMEM;
    const long error = arguments[0] == 0 ? 0 : move_break(*target);
    return is_error(error) ? error : old_break;
  }
  return raw_system_call(hooks[function].system_call, arguments);
}

/// The other library's answer, turned into the kernel's form.
long call_chained(Function function, const Arguments& a, const ConcernedMemory& memory, void* next) {
  const Call call{function, a, memory, chained_call};
  chained_call = &call;
  const long result =
      reinterpret_cast<long (*)(long, long, long, long, long, long)>(next)(a[0], a[1], a[2], a[3],  //
                                                                           a[4], a[5]);
  chained_call = call.outer;
  const bool failed = hooks[function].returns_word ? result == -1 : static_cast<int>(result) == -1;
  if (failed) return -errno;
  return hooks[function].returns_word ? result : static_cast<int>(result);
}

// ---- The callbacks ----

std::atomic<Answer (*)(const MemoryChange&)> callback_begin{nullptr};
std::atomic<void (*)(Range)> callback_end{nullptr};
std::atomic<void (*)(Range)> callback_appeared{nullptr};
std::atomic<void (*)()> callback_exposed{nullptr};

/// The alternative to going on that the replacement of a call has (memory_change.h).
Answer alternative_of(long system_call) {
  switch (system_call) {
    case SYS_munmap:
      return Answer::hold_back;
    case SYS_shmdt:
      return Answer::proceed;
    default:
      return Answer::refuse;
  }
}

ChangeKind kind_of_advice(int advice) {
  if (advice == MADV_DONTNEED) return ChangeKind::zeros;
  return advice == MADV_FREE ? ChangeKind::lazily : ChangeKind::other;
}

/// Tells what happens at the old place. A mapping that shrinks there loses its end, as by munmap.
ChangeKind kind_of_mremap(const Arguments& arguments) {
  const int flags = static_cast<int>(arguments[3]);
  if ((flags & MREMAP_DONTUNMAP) != 0) return ChangeKind::other;
  const bool shrinks = page_ceil(static_cast<Address>(arguments[2])) < static_cast<Address>(arguments[1]);
  return shrinks && (flags & MREMAP_FIXED) == 0 ? ChangeKind::unmap : ChangeKind::moves;
}

ChangeKind kind_of(long system_call, const Arguments& arguments) {
  switch (system_call) {
    case SYS_brk:
      return ChangeKind::heap;
    case SYS_munmap:
      return ChangeKind::unmap;
    case SYS_mprotect:
    case SYS_pkey_mprotect:
      return ChangeKind::rights;
    case SYS_mremap:
      return kind_of_mremap(arguments);
    case SYS_madvise:
      return kind_of_advice(static_cast<int>(arguments[2]));
    default:
      return ChangeKind::other;
  }
}

// ---- Other libraries that patch ----

/// A library that writes over our entries makes their pages writable first, by our own mprotect. A bit for
/// each of `hooks` whose entry may be written over now.
std::atomic<std::uint32_t> exposed_entries{0};
static_assert(kFunctions <= 32);

/// The pages of the patched entries, from the first to the last; empty while there are none.
struct {
  std::atomic<Address> begin{~Address{0}}, end{0};
  void cover(Range pages) {
    begin.store(std::min(begin.load(), pages.begin));
    end.store(std::max(end.load(), pages.end));
  }
  bool touched_by(Range range) const {
    return range.begin < end.load(std::memory_order_relaxed) &&
           begin.load(std::memory_order_relaxed) < range.end;
  }
} constinit patched_code;

std::uint32_t entries_in(Range range) {
  std::uint32_t entries = 0;
  for (const Hook& hook : hooks) {
    if (range.overlaps(hook.patch.pages())) entries |= 1u << (&hook - hooks);
  }
  return entries;
}

void report_exposed() {
  if (const auto exposed = callback_exposed.load(std::memory_order_acquire)) exposed();
}

/// Makes the call, an mprotect of these arguments, and takes note when it opens or closes patched code.
template <class MakeCall>
long protecting(const SystemCallArguments& arguments, MakeCall&& make_call) {
  const Range range =
      Range::of(reinterpret_cast<void*>(arguments[0]), static_cast<std::size_t>(arguments[1]));
  if (!patched_code.touched_by(range)) [[likely]]
    return make_call();
  const std::uint32_t entries = entries_in(range);
  if (entries == 0) return make_call();
  if ((arguments[2] & PROT_WRITE) == 0) {
    const long result = make_call();
    if (!is_error(result)) exposed_entries.fetch_and(~entries);
    return result;
  }
  const std::uint32_t opened = entries & ~exposed_entries.fetch_or(entries);
  report_exposed();
  const long result = make_call();
  if (is_error(result)) exposed_entries.fetch_and(~opened);
  return result;
}

/// libc's form of the kernel's answer. A call that succeeds leaves errno as it was, even if the callbacks
/// changed it.
long to_libc(long result, int caller_errno) {
  errno = is_error(result) ? static_cast<int>(-result) : caller_errno;
  return is_error(result) ? -1 : result;
}

/// The answer to the beginning of an event. An answer that the call cannot follow becomes `proceed`.
Answer begin_event(const MemoryChange& change, Answer (*begin)(const MemoryChange&)) {
  if (patched_code.touched_by(change.range) && entries_in(change.range) != 0) report_exposed();
  const Answer answer = begin == nullptr ? Answer::proceed : begin(change);
  event_watch.note_begin(change.range);
  const bool possible =
      change.takes(answer) || (answer == Answer::refuse && change.alternative == Answer::hold_back);
  return possible ? answer : Answer::proceed;
}

bool copy_memory(Range from, Address to) {
  const long self = raw_system_call(SYS_getpid, {});
  while (!from.empty()) {
    const iovec source{reinterpret_cast<void*>(from.begin), from.bytes()};
    const iovec target{reinterpret_cast<void*>(to), from.bytes()};
    const long bytes = raw_system_call(SYS_process_vm_readv, arguments_of(self, &target, 1, &source, 1, 0));
    if (is_error(bytes) || bytes == 0) return false;
    from.begin += static_cast<std::size_t>(bytes);
    to += static_cast<std::size_t>(bytes);
  }
  return true;
}

/// mremap of a copy of the memory.
template <class MakeCall>
long move_copy(Range memory, const Arguments& arguments, MakeCall&& make_call) {
  const long copy = raw_system_call(
      SYS_mmap, arguments_of(0L, memory.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (is_error(copy)) return -ENOMEM;
  long result = -ENOMEM;
  if (copy_memory(memory, static_cast<Address>(copy))) {
    Arguments moving = arguments;
    moving[0] = copy;
    result = make_call(moving);
  }
  if (is_error(result)) raw_system_call(SYS_munmap, arguments_of(copy, memory.bytes()));
  return result;
}

/// Makes the call, whose result is in the kernel's form, between the events; or has its result from their
/// answer.
template <class MakeCall>
long bracketed(long system_call, const Arguments& arguments, const ConcernedMemory& memory,
               MakeCall&& make_call) {
  if (memory.empty()) return make_call(arguments);
  // install publishes end before begin, so a thread that finds a begin has its end.
  const auto begin = callback_begin.load(std::memory_order_acquire);
  const auto end = callback_end.load(std::memory_order_relaxed);
  const Answer alternative = alternative_of(system_call);
  const Range ranges[] = {memory.first, memory.second};
  const ChangeKind kinds[] = {kind_of(system_call, arguments), ChangeKind::other};
  Answer answer = Answer::proceed;
  bool copies = false;
  int begun = 0;
  while (begun < 2 && answer == Answer::proceed) {
    const Range& range = ranges[begun];
    const ChangeKind kind = kinds[begun++];
    if (!range.empty()) answer = begin_event({range, alternative, kind}, begin);
    if (answer != Answer::copy) continue;
    copies = true;
    answer = Answer::proceed;
  }
  long result = system_call == SYS_mremap ? arguments[0] : 0;
  if (answer == Answer::refuse) result = -ENOMEM;
  if (answer == Answer::proceed)
    result = copies ? move_copy(memory.first, arguments, make_call) : make_call(arguments);
  while (begun > 0) {
    const Range& range = ranges[--begun];
    if (range.empty()) continue;
    event_watch.note_end(range);
    if (begin != nullptr) end(range);
  }
  return result;
}

void report_appeared(long system_call, const Arguments& arguments, long result) {
  const auto appeared = callback_appeared.load(std::memory_order_acquire);
  if (appeared == nullptr) return;
  const Range range = appeared_memory(system_call, arguments, result);
  if (!range.empty()) appeared(range);
}

long call_next(Function function, const Arguments& arguments, const ConcernedMemory& memory) {
  void* const next = hooks[function].next.load(std::memory_order_acquire);
  return next == nullptr ? call_kernel(function, arguments) : call_chained(function, arguments, memory, next);
}

/// The work of a function's replacement.
long perform(Function function, const Arguments& arguments, const ConcernedMemory& memory) {
  if (is_on_its_way(function, arguments)) return to_libc(call_kernel(function, arguments), errno);
  const int caller_errno = errno;
  const long system_call = hooks[function].system_call;
  const long result = bracketed(system_call, arguments, memory,
                                [&](const Arguments& a) { return call_next(function, a, memory); });
  report_appeared(system_call, arguments, result);
  return to_libc(result, caller_errno);
}

long perform(Function function, const Arguments& arguments) {
  return perform(function, arguments, concerned_memory(hooks[function].system_call, arguments));
}

// ---- Under ThreadSanitizer ----

#if defined(__SANITIZE_THREAD__)

/// libc's code. Written before the patches.
Range libc_code;

/// ThreadSanitizer has already taken leave of an ended thread when libc drops its stack, and instrumented
/// atomics (those of every sink) crash there. It replaces libc's allocator, so little else comes from inside
/// libc.
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

// ---- The replacements ----

int replace_munmap(void* address, std::size_t length) {
  const Arguments arguments = arguments_of(address, length);
  if (is_past_thread_end(__builtin_return_address(0)))
    return static_cast<int>(to_libc(call_kernel(kMunmap, arguments), errno));
  return static_cast<int>(perform(kMunmap, arguments));
}

void* replace_mmap(void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
  return reinterpret_cast<void*>(
      perform(kMmap, arguments_of(address, length, protection, flags, fd, offset)));
}

void* replace_mremap(void* address, std::size_t old_size, std::size_t new_size, int flags, ...) {
  void* new_address = nullptr;
  if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0) {
    va_list rest;
    va_start(rest, flags);
    new_address = va_arg(rest, void*);
    va_end(rest);
  }
  return reinterpret_cast<void*>(
      perform(kMremap, arguments_of(address, old_size, new_size, flags, new_address)));
}

int replace_madvise(void* address, std::size_t length, int advice) {
  const Arguments arguments = arguments_of(address, length, advice);
  if (is_past_thread_end(__builtin_return_address(0)))
    return static_cast<int>(to_libc(call_kernel(kMadvise, arguments), errno));
  return static_cast<int>(perform(kMadvise, arguments));
}

int replace_brk(void* address) { return static_cast<int>(perform(kBrk, arguments_of(address))); }

/// libc's sbrk calls its brk, which would be enough; but another library's sbrk makes the system call itself.
void* replace_sbrk(std::intptr_t increment) {
  const auto target = incremented_break(increment);
  return reinterpret_cast<void*>(
      perform(kSbrk, arguments_of(increment),
              target ? concerned_memory(SYS_brk, arguments_of(*target)) : ConcernedMemory{}));
}

void* replace_shmat(int id, const void* address, int flags) {
  return reinterpret_cast<void*>(perform(kShmat, arguments_of(id, address, flags)));
}

int replace_shmdt(const void* address) { return static_cast<int>(perform(kShmdt, arguments_of(address))); }

int replace_mprotect(void* address, std::size_t length, int protection) {
  const Arguments arguments = arguments_of(address, length, protection);
  return static_cast<int>(protecting(arguments, [&] { return perform(kMprotect, arguments); }));
}

int replace_pkey_mprotect(void* address, std::size_t length, int protection, int key) {
  const Arguments arguments = arguments_of(address, length, protection, key);
  return static_cast<int>(protecting(arguments, [&] { return perform(kPkeyMprotect, arguments); }));
}

int replace_remap_file_pages(void* address, std::size_t length, int protection, std::size_t page, int flags) {
  return static_cast<int>(perform(kRemapFilePages, arguments_of(address, length, protection, page, flags)));
}

ssize_t replace_process_madvise(int process, const void* vectors, std::size_t count, int advice,
                                unsigned flags) {
  return perform(kProcessMadvise, arguments_of(process, vectors, count, advice, flags));
}

const void* replacement_of(Function function) {
  const auto code_of = [](auto* replacement) { return reinterpret_cast<const void*>(replacement); };
  const LibcReplacements& r = libc_replacements;
  const void* const replacements[kFunctions] = {
      code_of(r.munmap),
      code_of(r.mmap),
      code_of(r.mremap),
      code_of(r.madvise),
      code_of(r.brk),
      code_of(r.sbrk),
      code_of(r.shmat),
      code_of(r.shmdt),
      code_of(r.mprotect),
      code_of(r.pkey_mprotect),
      code_of(r.remap_file_pages),
      code_of(r.process_madvise),
      code_of(r.syscall),
  };
  return replacements[function];
}

// ---- Installing ----

constinit std::mutex control;  // guards all that follows
HookCallbacks installed;       // its begin is null while nothing is installed

/// libc itself: the search order of the program may name an interposer first.
void* libc_handle() {
  static void* const handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return handle;
}

/// Whether the variable that libc's brk and sbrk share has been found.
Error check_libc_break() {
  if (&__curbrk == nullptr || to_argument(libc_break()) != raw_system_call(SYS_brk, {}))
    return Error::make(ENOTSUP, "libc's record of the break (__curbrk) cannot be found");
  return {};
}

/// Prepares the data of the replacements, once and before the first of them can run. Returns the reason where
/// brk cannot be patched.
Error prepare() {
  prepare_memory_calls();
  // A thread that does not exist in a forked child may have held the mutex.
  pthread_atfork(nullptr, nullptr, [] { new (&control) std::mutex; });
#if defined(__SANITIZE_THREAD__)
  if (libc_handle() != nullptr) find_libc_code(dlsym(libc_handle(), "munmap"));
#endif
  return check_libc_break();
}

const Error& prepared() {
  static const Error no_break = prepare();
  return no_break;
}

/// Puts our patch at the function's entry, in front of any jump there.
Error put_in_place(Hook& hook) {
  if (hook.patch.in_place()) return {};
  if (libc_handle() == nullptr) return Error::make(ENOENT, "the program has no libc.so.6");
  void* const function = dlsym(libc_handle(), hook.name);
  if (function == nullptr) return Error::make(ENOSYS, "this libc has no %s", hook.name);
  if (Error error = hook.patch.aim(function)) return error;
  // The entry of syscall() keeps no frame in which to remember that a call is on its way: were theirs called
  // next, and ours known to it as the original, calls would go round for ever.
  if (&hook == &hooks[kSyscall] && hook.patch.displaced_target() != nullptr)
    return Error::make(EBUSY, "another library has redirected it");
  // Before the patch, as the replacement may run at once.
  void* const previous = hook.next.exchange(hook.patch.displaced_target(), std::memory_order_acq_rel);
  patched_code.cover(hook.patch.pages());
  Error error = hook.patch.apply(replacement_of(static_cast<Function>(&hook - hooks)));
  if (error) hook.next.store(previous, std::memory_order_release);
  return error;
}

HookStatus status_of(const Hook& hook) {
  if (hook.patch.in_place())
    return {hook.name, hook.next.load() == nullptr ? HookState::good : HookState::chained, {}};
  if (hook.refused.code == ENOSYS) return {hook.name, HookState::skipped, hook.refused};
  return {hook.name, HookState::failed,
          hook.refused ? hook.refused : Error::make(EBUSY, "patched over by other code since")};
}

Error other_callbacks() { return Error::make(EBUSY, "another receiver of the memory events is installed"); }

void call_from_now_on(const HookCallbacks& callbacks) {
  installed = callbacks;
  callback_end.store(callbacks.end, std::memory_order_relaxed);
  callback_exposed.store(callbacks.exposed, std::memory_order_relaxed);
  callback_begin.store(callbacks.begin, std::memory_order_release);
  callback_appeared.store(callbacks.appeared, std::memory_order_release);
}

using LeadTo = void(const LibcReplacements*);
/// The preloaded library's lead function, where the program calls its symbols.
LeadTo* symbols_library() {
  Dl_info munmap_info{}, library_info{};
  void* const munmap_symbol = dlsym(RTLD_DEFAULT, "munmap");
  void* const lead_to = dlsym(RTLD_DEFAULT, "pinion_symbols_lead_to");
  if (munmap_symbol == nullptr || lead_to == nullptr || dladdr(munmap_symbol, &munmap_info) == 0 ||
      dladdr(lead_to, &library_info) == 0 || munmap_info.dli_fbase != library_info.dli_fbase)
    return nullptr;
  return reinterpret_cast<LeadTo*>(lead_to);
}

void lead_symbols_here(const HookCallbacks& callbacks) {
  chain_libc_behind_symbols();
  call_from_now_on(callbacks);
  symbols_library()(&libc_replacements);
}

HookReport report_hooks() {
  std::vector<HookStatus> rows;
  for (const Hook& hook : hooks) rows.push_back(status_of(hook));
  return summarize(std::move(rows));
}

}  // namespace

constinit const LibcReplacements libc_replacements = {
    .syscall = pinion_syscall_entry,
    .munmap = replace_munmap,
    .mmap = replace_mmap,
    .mremap = replace_mremap,
    .madvise = replace_madvise,
    .brk = replace_brk,
    .sbrk = replace_sbrk,
    .shmat = replace_shmat,
    .shmdt = replace_shmdt,
    .mprotect = replace_mprotect,
    .pkey_mprotect = replace_pkey_mprotect,
    .remap_file_pages = replace_remap_file_pages,
    .process_madvise = replace_process_madvise,
};

HookReport install_libc_hooks(HookCallbacks callbacks) {
  const std::lock_guard lock(control);
  if (installed.begin != nullptr) {
    HookReport report = report_hooks();
    if (!(installed == callbacks)) report.error = other_callbacks();
    return report;
  }
  const Error no_break = prepared();
  call_from_now_on(callbacks);
  for (Hook& hook : hooks) {
    const bool moves_break = hook.system_call == SYS_brk;
    hook.refused = moves_break && no_break ? no_break : put_in_place(hook);
  }
  return report_hooks();
}

bool hooks_call(const HookCallbacks& callbacks) {
  const std::lock_guard lock(control);
  return installed == callbacks;
}

HookReport install_symbols(HookCallbacks callbacks) {
  const std::lock_guard lock(control);
  const Error no_break = prepared();
  Error error;
  if (!symbols_are_preloaded())
    error = Error::make(
        ENOENT, "libpinion-symbols.so is not preloaded in front of libc: pinion run --monitor symbols");
  else if (installed.begin != nullptr && !(installed == callbacks))
    error = other_callbacks();
  else if (no_break)
    error = no_break;
  else
    lead_symbols_here(callbacks);
  return summarize({{"libpinion-symbols.so", error ? HookState::failed : HookState::good, error}});
}

bool symbols_are_preloaded() { return symbols_library() != nullptr; }

bool unmap_held_back(Range memory) {
  const int caller_errno = errno;
  const long result = call_next(kMunmap, arguments_of(memory.begin, memory.bytes()), {memory, {}});
  errno = caller_errno;
  return !is_error(result);
}

void chain_libc_behind_symbols() {
  for (Hook& hook : hooks) {
    void* nobody = nullptr;
    void* const function = libc_handle() == nullptr ? nullptr : dlsym(libc_handle(), hook.name);
    if (&hook != &hooks[kSyscall]) hook.next.compare_exchange_strong(nobody, function);
  }
}

HookReport reinstall_hooks() {
  const std::lock_guard lock(control);
  if (installed.begin != nullptr) {
    for (Hook& hook : hooks) {
      if (hook.patch.is_applied()) hook.refused = put_in_place(hook);
    }
  }
  return report_hooks();
}

bool hooks_intact() {
  const std::lock_guard lock(control);
  return installed.begin != nullptr && std::all_of(std::begin(hooks), std::end(hooks), [](const Hook& hook) {
           return !hook.patch.is_applied() || hook.patch.in_place();
         });
}

namespace {

/// UCX may also replace symbols, which leaves the code of libc as it was.
int is_ucx(dl_phdr_info* object, std::size_t, void*) {
  return object->dlpi_name != nullptr && std::strstr(object->dlpi_name, "/libucm.so") != nullptr;
}

}  // namespace

bool others_replace_mremap() {
  if (dl_iterate_phdr(is_ucx, nullptr) != 0) return true;
  const std::lock_guard lock(control);
  const Hook& hook = hooks[kMremap];
  const void* const next = hook.next.load(std::memory_order_acquire);
  if (libc_handle() == nullptr) return next != nullptr;
  const void* const function = dlsym(libc_handle(), hook.name);
  if (next != nullptr && next != function) return true;
  return hook.patch.is_applied() ? !hook.patch.in_place()
                                 : jump_target(static_cast<const std::byte*>(function)) != nullptr;
}

bool hooks_exposed() { return exposed_entries.load(std::memory_order_seq_cst) != 0; }

HookReport self_test() { return test_memory_events(); }

void uninstall_libc_hooks() {
  const std::lock_guard lock(control);
  installed = {};
  callback_begin.store(nullptr, std::memory_order_release);
  callback_exposed.store(nullptr, std::memory_order_release);
  callback_appeared.store(nullptr, std::memory_order_release);
  for (Hook& hook : hooks) {
    // An error means that another patch lies on top of ours; calls that reach us through it are passed on.
    static_cast<void>(hook.patch.restore());
  }
}

}  // namespace pinion

extern "C" long pinion_memory_system_call(long number, long a0, long a1, long a2, long a3, long a4, long a5) {
  using namespace pinion;
  const int caller_errno = errno;
  number = static_cast<int>(number);  // as the kernel takes it
  const SystemCallArguments arguments{a0, a1, a2, a3, a4, a5};
  const ConcernedMemory memory = concerned_memory(number, arguments);
  const auto make_call = [&](const SystemCallArguments& a) { return raw_system_call(number, a); };
  const auto in_brackets = [&] {
    return is_bracketed(memory) ? make_call(arguments) : bracketed(number, arguments, memory, make_call);
  };
  const bool protects = number == SYS_mprotect || number == SYS_pkey_mprotect;
  long result = protects ? protecting(arguments, in_brackets) : in_brackets();
  // A brk that fails returns the break as it is; the kernel's own brk never returns an error.
  if (number == SYS_brk && is_error(result)) result = raw_system_call(SYS_brk, {});
  report_appeared(number, arguments, result);
  return to_libc(result, caller_errno);
}
