#include "monitor/hooked_functions.h"

#include <sys/syscall.h>

#include <cerrno>

namespace pinion {
namespace {

/// libc's idea of the break, which its sbrk starts from. It may have been copied into the program; the linker
/// knows.
extern "C" [[gnu::weak]] void* __curbrk;
void* libc_break() {
  if (__curbrk == nullptr) __curbrk = reinterpret_cast<void*>(raw_system_call(SYS_brk, {}));
  return __curbrk;
}

/// A call that was given to other code. That may call our entry in its turn, as "the original" or as libc's
/// function. Or it makes the system call by syscall(), within the brackets that are open already.
struct Call {
  LibcFunction function;
  SystemCallArguments arguments;
  ConcernedMemory memory;
  void* code;
  const Call* outer;  ///< interrupted by a signal handler's
};
thread_local const Call* chained_call = nullptr;

/// Moves the break as libc does, which keeps its own record of it.
long move_break(Address target) {
  const auto result = static_cast<Address>(raw_system_call(SYS_brk, arguments_of(target)));
  __curbrk = reinterpret_cast<void*>(result);
  return result < target ? -ENOMEM : 0;
}

/// The other library's answer, turned into the kernel's form.
long call_chained(LibcFunction function, const SystemCallArguments& a, const ConcernedMemory& memory,
                  void* next) {
  const Call call{function, a, memory, next, chained_call};
  chained_call = &call;
  const long result =
      reinterpret_cast<long (*)(long, long, long, long, long, long)>(next)(a[0], a[1], a[2], a[3],  //
                                                                           a[4], a[5]);
  chained_call = call.outer;
  const bool failed = hooks[function].returns_word ? result == -1 : static_cast<int>(result) == -1;
  if (failed) return -errno;
  return hooks[function].returns_word ? result : static_cast<int>(result);
}

/// Whether this call was given to the code; null: to any.
bool is_given_to(const void* code, LibcFunction function, const SystemCallArguments& arguments) {
  for (const Call* call = chained_call; call != nullptr; call = call->outer) {
    const bool is_its = code == nullptr || call->code == code;
    if (is_its && call->function == function && call->arguments == arguments) return true;
  }
  return false;
}

/// Moves the break as libc's sbrk does: by libc's brk, which others may have redirected alone.
long move_break_by(std::intptr_t increment, const ConcernedMemory& memory) {
  const long old_break = to_argument(libc_break());
  const auto target = incremented_break(increment);
  if (!target) return -ENOMEM;
  const long error = increment == 0 ? 0 : call_entry(kBrk, arguments_of(*target), memory);
  return is_error(error) ? error : old_break;
}

}  // namespace

// A preload's constructor may install before this file's dynamic initialisation.
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
    {"ftruncate", SYS_ftruncate, false},
    {"truncate", SYS_truncate, false},
    {"fallocate", SYS_fallocate, false},
    {"syscall", -1, true},
};

bool finds_libc_break() {
  return &__curbrk != nullptr && to_argument(libc_break()) == raw_system_call(SYS_brk, {});
}

std::optional<Address> incremented_break(std::intptr_t increment) {
  Address target;
  if (__builtin_add_overflow(reinterpret_cast<Address>(libc_break()), increment, &target))
    return std::nullopt;
  return target;
}

bool is_on_its_way(LibcFunction function, const SystemCallArguments& arguments) {
  return is_given_to(nullptr, function, arguments);
}

bool is_bracketed(const ConcernedMemory& memory) {
  for (const Call* call = chained_call; call != nullptr; call = call->outer) {
    if (call->memory.contains(memory)) return true;
  }
  return false;
}

long call_kernel(LibcFunction function, const SystemCallArguments& arguments) {
  if (function == kBrk) return move_break(static_cast<Address>(arguments[0]));
  return raw_system_call(hooks[function].system_call, arguments);
}

long call_next(LibcFunction function, const SystemCallArguments& arguments, const ConcernedMemory& memory) {
  const Hook& hook = hooks[function];
  for (std::size_t place = 0; place <= CodePatch::kLevels; ++place) {
    void* const next = place < CodePatch::kLevels ? hook.patch.displaced(place) : hook.behind.load();
    if (next != nullptr && !is_given_to(next, function, arguments))
      return call_chained(function, arguments, memory, next);
  }
  return function == kSbrk ? move_break_by(arguments[0], memory) : call_kernel(function, arguments);
}

long call_entry(LibcFunction function, const SystemCallArguments& arguments, const ConcernedMemory& memory) {
  void* const entry = hooks[function].entry.load(std::memory_order_acquire);
  return entry == nullptr ? call_next(function, arguments, memory)
                          : call_chained(function, arguments, memory, entry);
}

}  // namespace pinion
