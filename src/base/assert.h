// PINION_ASSERT(condition): an invariant that a header states, checked where the code relies on it.
// Debug and sanitizer builds stop at a condition that is false, with one line: file, line, condition. Other
// builds evaluate nothing. A failure writes and aborts without allocating, so hooks and signal handlers may
// assert too.
//
//   PINION_ASSERT(!part->leased);
//   PINION_ASSERT(handle < first_ && "the handle was never given out");
//
// The condition must have no effects. A wrong argument of the user is an Error instead (base/error.h).
#pragma once

#if !defined(PINION_ASSERTIONS)
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PINION_ASSERTIONS 1
#else
#define PINION_ASSERTIONS 0
#endif
#endif

#if PINION_ASSERTIONS

#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace pinion {

[[noreturn, gnu::cold, gnu::noinline]] inline void assertion_failed(const char* line, std::size_t bytes) {
  // The process ends either way.
  if (::write(STDERR_FILENO, line, bytes) < 0) std::abort();
  std::abort();
}

}  // namespace pinion

#define PINION_ASSERT_TEXT_OF(token) #token
#define PINION_ASSERT_TEXT(token) PINION_ASSERT_TEXT_OF(token)
#define PINION_ASSERT(condition)                                                          \
  do {                                                                                    \
    static constexpr char pinion_line[] =                                                 \
        __FILE__ ":" PINION_ASSERT_TEXT(__LINE__) ": assertion failed: " #condition "\n"; \
    if (!(condition)) [[unlikely]]                                                        \
      ::pinion::assertion_failed(pinion_line, sizeof pinion_line - 1);                    \
  } while (false)

#else

/// Unevaluated: the names count as used.
#define PINION_ASSERT(condition) static_cast<void>(sizeof(!(condition)))

#endif
