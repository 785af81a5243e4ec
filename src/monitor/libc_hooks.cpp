#include "monitor/libc_hooks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>

#include "base/loaded_objects.h"
#include "base/process_mutex.h"
#include "monitor/code_patch.h"
#include "monitor/hook_self_test.h"
#include "monitor/hooked_change.h"
#include "monitor/hooked_functions.h"
#include "monitor/libc_replacements.h"
#include "monitor/map_changes.h"
#include "monitor/mapping_tails.h"
#include "monitor/memory_calls.h"
#include "monitor/patch_exposure.h"
#include "monitor/syscall_entry.h"
#include "monitor/system_call.h"
#include "monitor/userfault.h"

namespace pinion {
namespace {

using Arguments = SystemCallArguments;

/// libc's form of the kernel's answer. A call that succeeds leaves errno as it was, even if the callbacks
/// changed it.
long to_libc(long result, int caller_errno) {
  errno = is_error(result) ? static_cast<int>(-result) : caller_errno;
  return is_error(result) ? -1 : result;
}

/// Whether the kernel takes the memory map's lock for writing.
bool changes_map(LibcFunction function) {
  switch (function) {
    case kMadvise:
    case kProcessMadvise:
    case kFtruncate:
    case kTruncate:
    case kFallocate:
      return false;
    default:
      return true;
  }
}

long perform(LibcFunction function, const Arguments& arguments);

void give_up(Range tail) { perform(kMunmap, arguments_of(tail.begin, tail.bytes())); }

/// Tails go before the memory in front of them changes, and where the program names their place.
void give_up_tails(long system_call, const Arguments& arguments, const ConcernedMemory& memory) {
  if (mapping_tails.empty()) return;
  if (system_call == SYS_mremap)  // one that grows in place is no event
    mapping_tails.take(pages_touched(Range::of(reinterpret_cast<void*>(arguments[0]),
                                               static_cast<std::size_t>(arguments[1]))),
                       give_up);
  for (const Range range : {memory.first, memory.second}) mapping_tails.take(range, give_up);
  if (const Range named = named_memory(system_call, arguments); !named.empty())
    mapping_tails.take_inside(named, give_up);
}

/// Makes the call, and makes it again where it lacked memory that the tails had.
template <class MakeCall>
long call_again_without_tails(long system_call, MakeCall&& make_call) {
  const long result = make_call();
  if (!lacks_memory(system_call, result) || mapping_tails.empty()) return result;
  mapping_tails.take(all_addresses(), give_up);
  return make_call();
}

/// The work of a function's replacement.
long perform(LibcFunction function, const Arguments& arguments, const ConcernedMemory& memory) {
  const int caller_errno = errno;
  if (is_on_its_way(function, arguments))
    return to_libc(call_next(function, arguments, memory), caller_errno);
  const long system_call = hooks[function].system_call;
  give_up_tails(system_call, arguments, memory);
  Range tail;
  const long result = bracketed(system_call, arguments, memory, [&](const Arguments& a) {
    const MapChange change(changes_map(function));
    return call_again_without_tails(system_call, [&] {
      return function == kMmap ? map_as_wished(a, memory, tail) : call_next(function, a, memory);
    });
  });
  report_appeared(system_call, arguments, result, tail);
  return to_libc(result, caller_errno);
}

long perform(LibcFunction function, const Arguments& arguments) {
  return perform(function, arguments, concerned_memory(hooks[function].system_call, arguments));
}

// ---- Under ThreadSanitizer ----

#if defined(__SANITIZE_THREAD__)

/// libc's code. Written before the patches, through which other threads come to read it.
Range libc_code;

/// ThreadSanitizer has already taken leave of an ended thread when libc drops its stack, and instrumented
/// atomics (those of every sink) crash there. It replaces libc's allocator, so little else comes from inside
/// libc. It cannot know that a patch publishes what was written before: so this is not instrumented.
[[gnu::no_sanitize_thread]] bool is_past_thread_end(const void* caller) {
  const auto address = reinterpret_cast<Address>(caller);
  return libc_code.begin <= address && address < libc_code.end;
}

void find_libc_code(const void* function) {
  for_each_loaded_object([&](const LoadedObject& object) {
    libc_code = object.segment_around(function);
    return !libc_code.empty();
  });
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

/// libc's sbrk calls its brk, which would be enough for us; but another library's sbrk makes the system call
/// itself.
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

int replace_ftruncate(int fd, off_t length) {
  return static_cast<int>(perform(kFtruncate, arguments_of(fd, length)));
}

int replace_truncate(const char* path, off_t length) {
  return static_cast<int>(perform(kTruncate, arguments_of(path, length)));
}

int replace_fallocate(int fd, int mode, off_t offset, off_t length) {
  return static_cast<int>(perform(kFallocate, arguments_of(fd, mode, offset, length)));
}

const void* replacement_of(LibcFunction function) {
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
      code_of(r.ftruncate),
      code_of(r.truncate),
      code_of(r.fallocate),
      code_of(r.syscall),
  };
  return replacements[function];
}

// ---- Installing ----

/// Guards the patches too.
constinit ProcessMutex control;
/// Its begin is null while nothing is installed.
HookCallbacks installed GUARDED_BY(control);

/// Whether the variable that libc's brk and sbrk share has been found.
Error check_libc_break() {
  if (!finds_libc_break())
    return Error::make(ENOTSUP, "libc's record of the break (__curbrk) cannot be found");
  return {};
}

/// Prepares the data of the replacements, once and before the first of them can run. Returns the reason where
/// brk cannot be patched.
Error prepare() {
  prepare_memory_calls();
  pthread_atfork(nullptr, nullptr, OwnPatching::forget_in_child);
#if defined(__SANITIZE_THREAD__)
  find_libc_code(c_library_function("munmap"));
#endif
  return check_libc_break();
}

const Error& prepared() {
  static const Error no_break = prepare();
  return no_break;
}

/// Puts our patch at the function's entry, in front of any jump there.
Error put_in_place(Hook& hook) REQUIRES(control) {
  if (hook.patch.in_place() && hook.entry.load() != nullptr) return {};
  if (c_library_function("munmap") == nullptr) return Error::make(ENOENT, "the program has no libc.so.6");
  void* const function = c_library_function(hook.name);
  if (function == nullptr) return Error::make(ENOSYS, "this libc has no %s", hook.name);
  if (Error error = hook.patch.aim(function, hook.name)) return error;
  if (hook.patch.in_place()) {  // others have put back what they displaced, or a parent's thread was here
    expect_exposure_of(hook.patch.pages());
    hook.entry.store(function, std::memory_order_release);
    return {};
  }
  // The entry of syscall() keeps no frame in which to remember that a call is on its way: were theirs called
  // next, and ours known to it as the original, calls would go round for ever.
  if (&hook == &hooks[kSyscall] && hook.patch.displaced_target() != nullptr)
    return Error::make(EBUSY, "another library has redirected it");
  const OwnPatching turn;
  if (!turn) return Error::make(EAGAIN, "other code is patching libc now");
  expect_exposure_of(hook.patch.pages());
  Error error = hook.patch.apply(replacement_of(static_cast<LibcFunction>(&hook - hooks)));
  if (!error) hook.entry.store(function, std::memory_order_release);
  return error;
}

/// Whether calls go on to another library's replacement.
bool is_chained(const Hook& hook) {
  return hook.patch.displaced(0) != nullptr || hook.behind.load() != nullptr;
}

HookStatus status_of(const Hook& hook) REQUIRES(control) {
  if (hook.patch.in_place()) return {hook.name, is_chained(hook) ? HookState::chained : HookState::good, {}};
  if (hook.refused.code == ENOSYS) return {hook.name, HookState::skipped, hook.refused};
  return {hook.name, HookState::failed,
          hook.refused ? hook.refused : Error::make(EAGAIN, "patched over by other code since")};
}

Error other_callbacks() { return Error::make(EBUSY, "another receiver of the memory events is installed"); }

void call_from_now_on(const HookCallbacks& callbacks) REQUIRES(control) {
  installed = callbacks;
  report_exposure_to(callbacks.exposed);
  report_changes_to(callbacks);
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

void lead_symbols_here(const HookCallbacks& callbacks) REQUIRES(control) {
  using Behind = void*(const char*);
  auto* const behind = reinterpret_cast<Behind*>(dlsym(RTLD_DEFAULT, "pinion_symbols_behind"));
  chain_behind_symbols(behind == nullptr ? c_library_function : behind);  // null: of an earlier build
  call_from_now_on(callbacks);
  symbols_library()(&libc_replacements);
}

HookReport report_hooks() REQUIRES(control) {
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
    .ftruncate = replace_ftruncate,
    .truncate = replace_truncate,
    .fallocate = replace_fallocate,
};

HookReport install_libc_hooks(HookCallbacks callbacks) {
  const ProcessLock lock(control);
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
  MapChanges::set_seen(hooks[kMmap].patch.in_place() && hooks[kMunmap].patch.in_place());
  return report_hooks();
}

bool hooks_call(const HookCallbacks& callbacks) {
  const ProcessLock lock(control);
  return installed == callbacks;
}

HookReport install_symbols(HookCallbacks callbacks) {
  const ProcessLock lock(control);
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
  if (!error) MapChanges::set_seen(true);
  return summarize({{"libpinion-symbols.so", error ? HookState::failed : HookState::good, error}});
}

bool symbols_are_preloaded() { return symbols_library() != nullptr; }

bool unmap_held_back(Range memory) {
  const int caller_errno = errno;
  const long result = call_entry(kMunmap, arguments_of(memory.begin, memory.bytes()), {memory, {}});
  errno = caller_errno;
  return !is_error(result);
}

bool empty_heard(Range memory) {
  const int caller_errno = errno;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  const long result =
      call_entry(kMmap, arguments_of(memory.begin, memory.bytes(), PROT_NONE, kFlags, -1, 0), {memory, {}});
  errno = caller_errno;
  return !is_error(result);
}

void chain_behind_symbols(void* (*definition)(const char*)) {
  for (Hook& hook : hooks)
    if (&hook != &hooks[kSyscall]) hook.behind.store(definition(hook.name), std::memory_order_release);
}

HookReport reinstall_hooks() {
  const ProcessLock lock(control);
  if (installed.begin != nullptr) {
    for (Hook& hook : hooks) {
      if (hook.patch.is_applied()) hook.refused = put_in_place(hook);
    }
  }
  return report_hooks();
}

bool hooks_intact() {
  const ProcessLock lock(control);
  return installed.begin != nullptr && std::all_of(std::begin(hooks), std::end(hooks), [](const Hook& hook) {
           return !hook.patch.is_applied() || hook.patch.in_place();
         });
}

namespace {

/// UCX may also replace symbols, which leaves the code of libc as it was.
bool is_ucx(const LoadedObject& object) { return std::strstr(object.file(), "/libucm.so") != nullptr; }

}  // namespace

bool others_replace_mremap() {
  if (for_each_loaded_object(is_ucx)) return true;
  const ProcessLock lock(control);
  const Hook& hook = hooks[kMremap];
  const void* const function = c_library_function(hook.name);
  const void* const behind = hook.behind.load();
  if (hook.patch.displaced(0) != nullptr || (behind != nullptr && behind != function)) return true;
  if (function == nullptr) return false;
  return hook.patch.is_applied() ? !hook.patch.in_place()
                                 : jump_target(static_cast<const std::byte*>(function)) != nullptr;
}

void uninstall_libc_hooks() {
  const ProcessLock lock(control);
  installed = {};
  MapChanges::set_seen(false);
  stop_reporting_changes();
  // Nobody would hear of a change in front of one.
  mapping_tails.take({0, ~Address{0}},
                     [](Range tail) { raw_system_call(SYS_munmap, arguments_of(tail.begin, tail.bytes())); });
  report_exposure_to(nullptr);
  const OwnPatching turn;
  for (Hook& hook : hooks) {
    // Ours stays where others patch now, or lie on top: calls that reach it are passed on.
    if (turn) static_cast<void>(hook.patch.restore());
  }
}

}  // namespace pinion

extern "C" long pinion_memory_system_call(long number, long a0, long a1, long a2, long a3, long a4, long a5) {
  using namespace pinion;
  const int caller_errno = errno;
  number = static_cast<int>(number);  // as the kernel takes it
  const SystemCallArguments arguments{a0, a1, a2, a3, a4, a5};
  const ConcernedMemory memory = concerned_memory(number, arguments);
  give_up_tails(number, arguments, memory);
  const auto make_call = [&](const SystemCallArguments& a) {
    return call_again_without_tails(number, [&] { return raw_system_call(number, a); });
  };
  const auto in_brackets = [&] {
    return is_bracketed(memory) ? make_call(arguments) : bracketed(number, arguments, memory, make_call);
  };
  const bool protects = number == SYS_mprotect || number == SYS_pkey_mprotect;
  long result = protects ? protecting(arguments, in_brackets) : in_brackets();
  // A brk that fails returns the break as it is; the kernel's own brk never returns an error.
  if (number == SYS_brk && is_error(result)) result = raw_system_call(SYS_brk, {});
  report_appeared(number, arguments, result);
  if (number == SYS_userfaultfd && !is_error(result)) userfaultfd_gives_way();
  return to_libc(result, caller_errno);
}
