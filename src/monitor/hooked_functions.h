// libc's functions that the hooks replace, and the way down from each: the replacements of other libraries,
// in the order in which they would be called without ours, then the kernel. A table that outlives everything,
// initialised by the compiler. Patches are changed under libc_hooks.cpp's mutex; the calls down come from any
// thread and signal handler, and take no lock.
#pragma once

#include <sys/syscall.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/range.h"
#include "monitor/code_patch.h"
#include "monitor/memory_calls.h"
#include "monitor/system_call.h"

namespace pinion {

enum LibcFunction : std::size_t {
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
  kFtruncate,
  kTruncate,
  kFallocate,
  kSyscall,
  kFunctions
};

struct Hook {
  const char* name;
  long system_call;
  bool returns_word;  ///< a pointer or a size; else int
  CodePatch patch{};
  Error refused{};                     ///< why there is no patch
  std::atomic<void*> entry{nullptr};   ///< libc's function, once it is patched: what a caller in libc reaches
  std::atomic<void*> behind{nullptr};  ///< the definition behind the symbols library's, which is called last
};

extern constinit Hook hooks[kFunctions];

/// True if the variable that libc's brk and sbrk share has been found.
bool finds_libc_break();
/// Returns the break that sbrk(increment) wants; empty where that lies outside of the address space.
std::optional<Address> incremented_break(std::intptr_t increment);

/// True in a call that another library's replacement, or call_entry(), makes by our entry, within the
/// brackets that are open already.
bool is_on_its_way(LibcFunction function, const SystemCallArguments& arguments);
/// True for a system call that another library's replacement makes by syscall(), within the brackets that are
/// open already.
bool is_bracketed(const ConcernedMemory& memory);

/// Makes the call; the kernel's answer: a value or -errno.
long call_kernel(LibcFunction function, const SystemCallArguments& arguments);
/// Calls the first replacement of the chain that is not on its way with this call, else the kernel: one that
/// keeps ours as "the original" calls us again, and the next is its turn. The answer has the kernel's form.
long call_next(LibcFunction function, const SystemCallArguments& arguments, const ConcernedMemory& memory);
/// Calls libc's function as its other callers do, so that also those hear of it who have patched over us
/// since. The caller has opened the brackets.
long call_entry(LibcFunction function, const SystemCallArguments& arguments, const ConcernedMemory& memory);

}  // namespace pinion
