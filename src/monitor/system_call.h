// System calls that bypass libc: its wrappers lead into our own hooks and set errno, which
// belongs to the hooked call's caller until the end. Any thread, any signal handler.
#pragma once

#include <array>
#include <type_traits>

namespace pinion {

using SystemCallArguments = std::array<long, 6>;

template <class T>
long to_argument(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}

template <class... T>
SystemCallArguments arguments_of(T... values) {
  return {to_argument(values)...};
}

/// The kernel's answer: a value or -errno.
inline long raw_system_call(long number, const SystemCallArguments& arguments) {
  // Copied first: reading the array may be a function call (unoptimised, or instrumented), and would spoil
  // registers that are bound already.
  const long v0 = arguments[0], v1 = arguments[1], v2 = arguments[2];
  const long v3 = arguments[3], v4 = arguments[4], v5 = arguments[5];
#if defined(__x86_64__)
  register long a3 asm("r10") = v3;
  register long a4 asm("r8") = v4;
  register long a5 asm("r9") = v5;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(v0), "S"(v1), "d"(v2), "r"(a3), "r"(a4), "r"(a5)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = v0;
  register long x1 asm("x1") = v1;
  register long x2 asm("x2") = v2;
  register long x3 asm("x3") = v3;
  register long x4 asm("x4") = v4;
  register long x5 asm("x5") = v5;
  asm volatile("svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8) : "memory");
  return x0;
#endif
}

inline bool is_error(long result) { return static_cast<unsigned long>(result) > -4096UL; }

}  // namespace pinion
