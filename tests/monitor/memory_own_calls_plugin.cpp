// A library that drops pages by a system call of its own, as Go's runtime does.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cstddef>

extern "C" long plugin_drop(void* begin, std::size_t bytes) {
#if defined(__x86_64__)
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(SYS_madvise), "D"(begin), "S"(bytes), "d"(MADV_DONTNEED)
               : "rcx", "r11", "memory");
  return result;
#else
  register long x8 asm("x8") = SYS_madvise;
  register long x0 asm("x0") = reinterpret_cast<long>(begin);
  register long x1 asm("x1") = static_cast<long>(bytes);
  register long x2 asm("x2") = MADV_DONTNEED;
  asm volatile("svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x8) : "memory");
  return x0;
#endif
}
