// fork(), before the C library's. Handlers of pthread_atfork() would let registrations go too late: those of
// a library that was loaded later run sooner, and may hold the locks that deregistering takes (libcuda's do).
//
// Owns the next definition. Any thread; also in signal handlers, as far as the program's own fork may.
#include <unistd.h>

#include <atomic>

#include "engine/engine.h"
#include "intercept/exports.h"

namespace {

using Fork = pid_t (*)();

constinit std::atomic<Fork> g_next{nullptr};

Fork next_fork() {
  Fork next = g_next.load(std::memory_order_relaxed);
  if (next == nullptr) g_next.store(next = pinion::next_symbol<Fork>("fork"), std::memory_order_relaxed);
  return next;
}

/// A signal handler that forks must not look for it.
[[gnu::constructor]] void find_next() { next_fork(); }

}  // namespace

extern "C" PINION_EXPORT pid_t fork() noexcept {
  const Fork next = next_fork();
  pinion::Engine::before_fork();
  const pid_t child = next();
  pinion::Engine::after_fork();
  return child;
}
