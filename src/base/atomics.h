// The atomics policy: every lock-free part takes its atomics as a template parameter. Production code uses
// std::atomic; the deterministic scheduler of the tests interleaves every access. Lone fences are left out,
// because ThreadSanitizer misjudges them; membarrier stands in lease/thread_fence.h alone.
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
