// Forks. The child loses the helper and the parent's registrations: it runs as without Pinion, or starts an
// engine of its own. No mutex is held across a fork, so the parent is safe from deadlock and a handler of
// another library may come before or after these. In the child, mutexes of the process and the guards of
// static variables are free, whoever held them (base/process_mutex.h, static_guards.cpp). It makes anew the
// rest that it uses of the parent's (here, in users.cpp, memory_events.cpp, libc_hooks.cpp,
// fabric_monitor.cpp). A child may touch all of its memory: MADV_DONTFORK is used on the arena alone, whose
// blocks are copied (placement/arena.h). libibverbs may use it on memory that it registers. Then all idle
// regions go before a fork, and regions are kept from becoming idle until it is over (fork_gate.h).
//
// A library's own handlers may hold its locks when these run (DeviceCapabilities::locks_at_fork): the last
// ones to be added run first. So the preload has a fork() of its own (intercept/fork.cpp), which lets regions
// go before any handler. Where it is passed by, the device is left alone, and the kernel copies its pages.
//
// A child of vfork, posix_spawn or clone with shared memory runs without these handlers. It has the parent's
// memory, so its memory events are the parent's. A child of _Fork() or a bare clone(2) has a copy without a
// helper: Pinion's calls are forbidden there.
#include <pthread.h>

#include <mutex>

#include "base/held_signals.h"
#include "monitor/map_changes.h"
#include "placement/heap_mutex.h"
#include "process/engine.h"

namespace pinion {

namespace {

/// The kernel copies pinned pages at fork, one by one: 0.2 to 0.3 ms for each MiB, ten times the cost of
/// registering it again. Up to this much they are left registered.
constexpr std::uint64_t kCopiedAtFork = std::uint64_t{1} << 20;

/// Whose gate the calling thread has closed for its fork.
constinit thread_local ForkGate* t_closed = nullptr;
/// Between before_fork() and after_fork(): the handlers find nothing to do.
constinit thread_local bool t_prepared = false;

void reopen() {
  if (t_closed != nullptr) t_closed->open();
  t_closed = nullptr;
}

}  // namespace

void Engine::watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto before = [] {
      if (Engine* engine = t_prepared ? nullptr : running()) engine->let_go_before_fork(true);
    };
    const auto in_child = [] {
      t_closed = nullptr;
      if (Engine* parent = withdraw()) parent->domains_.abandon_after_fork();
      RunMemory::abandon_after_fork();
      MapChanges::forget_after_fork();
      forget_this_thread();
    };
    pthread_atfork(before, reopen, in_child);
  });
}

void Engine::before_fork() {
  Engine* const engine = running();
  if (engine == nullptr) return;
  engine->let_go_before_fork(false);
  t_prepared = true;
}

void Engine::after_fork() {
  t_prepared = false;
  reopen();  // no handler has run if the fork failed
}

void Engine::let_go_before_fork(bool in_handlers) {
  if (is_inside_heap()) return;  // a signal handler forks, and its thread holds the arena's mutex
  const bool all = domains_.lets_all_go_at_fork();
  if (!all && budget_.bytes() <= kCopiedAtFork) return;
  const HeldSignals held;
  // If not `all`, pages that stay pinned only cost time.
  const std::unique_lock lock = domains_.lock_for_fork(all);
  ThreadContext* thread = this_thread();
  if (!lock || running() != this || !thread) return;
  if (all && t_closed == nullptr) {
    retirement().fork_gate().close();
    t_closed = &retirement().fork_gate();
  }
  for (int i = 0; i < domains_.count(); ++i)
    if (!in_handlers || !domains_.slot(i).device->capabilities().locks_at_fork)
      retirement().let_go_in(*thread, i, {0, ~Address{0}});
  // Registering segments again costs less than copying their blocks for the child.
  retirement().close_idle(*thread, UINT64_MAX, 0);
}

}  // namespace pinion
