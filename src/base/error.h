// Errors as values: an errno code, and one line with the failed step, the limit, the need and the cure.
// Fixed storage, so that an error can be made where allocation is forbidden.
#pragma once

#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace pinion {

struct [[nodiscard]] Error {
  int code = 0;  ///< errno value; 0 means no error
  char message[512] = {};

  explicit operator bool() const { return code != 0; }

  [[gnu::format(printf, 2, 3)]] static Error make(int code, const char* format, ...) {
    Error e;
    e.code = code;
    va_list args;
    va_start(args, format);
    std::vsnprintf(e.message, sizeof e.message, format, args);
    va_end(args);
    return e;
  }
};

}  // namespace pinion
