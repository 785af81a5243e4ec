// The atomics policy: every lock-free part takes its atomics as a template parameter, so that production code
// uses std::atomic, ThreadSanitizer sees nothing it does not understand (no lone fences, no membarrier), and
// the deterministic scheduler of the tests can interleave every access.
#pragma once

#include <atomic>

namespace pinion {

struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  /// Called in every spin: gives the core a rest (and, in tests, the scheduler a turn).
  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield" ::: "memory");
#endif
  }
};

}  // namespace pinion
