// Whether a test is built with a sanitizer, whose allocator makes its own system calls, past libc.
#pragma once

namespace pinion {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace pinion
