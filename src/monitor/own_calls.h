// Finds code that bypasses libc for the system calls by which memory changes: Go's runtime, a second libc, an
// allocator with inline assembly. Hooks of libc miss those calls.
//
// find_own_call() reads machine code: a `syscall` instruction that a number of memory_calls.h reaches in a
// few plain instructions, or the first argument of a function does. Moving the break is left out: its owner
// is libc, beneath the hooks. Numbers that come from elsewhere go unrecognised (OpenMP's runtime waits that
// way).
//
// look_at_loaded_code() reads the executable file mappings of this process, each once: those of every
// namespace of the dynamic linker and those mapped by hand. Exceptions are the hooked libc, the dynamic
// linker (loader.h), the vdso, Pinion's own libraries, and files that an earlier process of this user has
// read (known_code.h). Code that a program makes at run time goes unread. Owns the record of code read so
// far, guarded by a mutex. Ordinary code; allocates; never in a hook.
#pragma once

#include <cstddef>
#include <optional>

#include "base/error.h"

namespace pinion {

struct OwnCall {
  std::size_t offset;  ///< of the system call instruction
  const char* name;    ///< of the system call
};

/// No call takes more code, from its number on.
constexpr std::size_t kMostOwnCallBytes = 128;

/// The first such call in the machine code.
std::optional<OwnCall> find_own_call(const std::byte* code, std::size_t bytes);

struct CodeFinding {
  bool complete = false;  ///< all code is read for now
  Error own_calls;        ///< names the first object with such a call, for good
};

/// Reads on, at most so many bytes more. Incomplete also where another thread is reading.
CodeFinding look_at_loaded_code(std::size_t most_bytes);
/// The finding so far.
Error own_calls_found();

}  // namespace pinion
