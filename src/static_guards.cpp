// The guards of static variables in functions, in place of the C++ runtime's. A fork may come while a thread
// makes such a variable. The child lacks that thread, and would wait for it for ever at its own first use;
// here it makes the variable anew.
//
// Linked into each shared library before its runtime (cmake/own_runtime.cmake), for that library's variables
// alone. Any thread; a guard is taken once a variable, outside of hooks.
#include <sched.h>

#include <atomic>
#include <cstdint>

#include "base/fork_generation.h"

namespace {

/// The layout is the Itanium ABI's: the compiler's code reads the first byte. The rest is ours.
struct Guard {
  std::atomic<std::uint8_t> made;
  std::uint8_t unused[3];
  std::atomic<std::uint32_t> maker;  ///< 0: nobody; else one more than the generation of the thread's process
};
static_assert(sizeof(Guard) == sizeof(std::uint64_t));

void leave(Guard* guard) { guard->maker.store(0, std::memory_order_release); }

}  // namespace

/// 1: the caller makes the variable, and releases the guard or aborts.
extern "C" int __cxa_guard_acquire(Guard* guard) noexcept {
  const std::uint32_t self = pinion::fork_generation.load(std::memory_order_relaxed) + 1;
  while (guard->made.load(std::memory_order_acquire) == 0) {
    if (guard->maker.exchange(self, std::memory_order_acquire) == self) {
      sched_yield();
      continue;
    }
    if (guard->made.load(std::memory_order_acquire) == 0) return 1;
    leave(guard);
  }
  return 0;
}

extern "C" void __cxa_guard_release(Guard* guard) noexcept {
  guard->made.store(1, std::memory_order_release);
  leave(guard);
}

extern "C" void __cxa_guard_abort(Guard* guard) noexcept { leave(guard); }
