// libc's functions that the hooks replace, and the way down from each: to another library's replacement, or
// to the kernel. A table that outlives everything, initialised by the compiler. Patches are changed under
// libc_hooks.cpp's mutex; the calls down come from any thread and signal handler, and take no lock.
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
  Error refused{};                   ///< why there is no patch
  std::atomic<void*> next{nullptr};  ///< another library's replacement, called instead of the kernel
};

extern constinit Hook hooks[kFunctions];

/// True if the variable that libc's brk and sbrk share has been found.
bool finds_libc_break();
/// Returns the break that sbrk(increment) wants; empty where that lies outside of the address space.
std::optional<Address> incremented_break(std::intptr_t increment);

/// True in a call that another library's replacement makes by our entry as "the original". Such a nested call
/// goes to the kernel.
bool is_on_its_way(LibcFunction function, const SystemCallArguments& arguments);
/// True for a system call that another library's replacement makes by syscall(), within the brackets that are
/// open already.
bool is_bracketed(const ConcernedMemory& memory);

/// Makes the call; the kernel's answer: a value or -errno.
long call_kernel(LibcFunction function, const SystemCallArguments& arguments);
/// Calls the other library's replacement, if there is one, else the kernel. The answer has the kernel's form.
long call_next(LibcFunction function, const SystemCallArguments& arguments, const ConcernedMemory& memory);

}  // namespace pinion
