// fork(), before the C library's. Handlers of pthread_atfork() would let registrations go too late: those of
// a library that was loaded later run sooner, and may hold the locks that deregistering takes (libcuda's do).
//
// Owns the next definition. Any thread; also in signal handlers, as far as the program's own fork may.
#include <unistd.h>

#include "intercept/exports.h"
#include "process/engine.h"

namespace {

constinit pinion::NextFunction<pid_t()> next_fork{"fork"};

/// A signal handler that forks must not look for it.
[[gnu::constructor]] void find_next() { next_fork.get(); }

}  // namespace

extern "C" PINION_EXPORT pid_t fork() noexcept {
  const auto next = next_fork.get();
  pinion::Engine::before_fork();
  const pid_t child = next();
  pinion::Engine::after_fork();
  return child;
}
