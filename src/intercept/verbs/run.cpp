#include "intercept/verbs/run.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "base/process.h"
#include "base/process_mutex.h"
#include "base/warning.h"
#include "intercept/same_build.h"
#include "intercept/verbs/handles.h"
#include "intercept/verbs/under_way.h"
#include "lease/acts.h"
#include "lease/thread_end.h"
#include "monitor/sandbox.h"
#include "process/engine.h"

namespace pinion::verbs {

namespace {

constinit ProcessMutex g_starting;
constinit std::atomic<LeasePath*> g_leases{nullptr};
constinit std::atomic<bool> g_off{false};     ///< everything passes by
constinit std::atomic<bool> g_forked{false};  ///< the handles are the parent's

/// The leases of handles that the program has as it ends get their records: without them its memory would
/// count as registered, and as used by nobody. The leases stay: a device may still use the memory.
void write_open_leases() {
  LeasePath* const leases = LeasePath::running();
  ThreadContext* const thread = this_thread();
  if (leases == nullptr || thread == nullptr || g_forked.load(std::memory_order_acquire)) return;
  Handles::instance().for_each_held([&](const Backing& backing) {
    if (backing.transfer.active) leases->note_open(*thread, backing.transfer);
  });
}

Error start(LeasePath*& leases) {
  if (!same_build_or_say_so()) return {};
  Options options;
  if (Error error = options_from_environment(options)) return error;
  if (options.off || !may_act_below(options)) return {};
  JobPlace place = job_place();
  if (!list_holds(options.only_ranks, place.rank).value_or(true)) return {};
  // A run after the one of MPI is none of the job's ranks.
  if (Engine::running() == nullptr && Engine::was_started()) place = {-1, -1, place.local_ranks};
  if (Error error = Engine::join(options, place, false)) return error;
  if (!Engine::running()->act_below()) return Engine::leave();
  leases = LeasePath::running();
  watch_thread_ends(end_call_left_behind);
  const int handler = pthread_atfork(nullptr, nullptr, [] {
    g_off.store(true);
    g_forked.store(true);
  });
  if (handler != 0) return Error::make(handler, "no memory for a fork handler");
  std::atexit([] {
    write_open_leases();
    Engine::stop_at_exit();
  });
  return {};
}

/// Notes the filters ahead: the engine starts at the first registration, behind a sandbox perhaps.
[[gnu::constructor]] void note_filters_ahead() {
  Options options;
  if (options_from_environment(options) || options.off || !may_act_below(options)) return;
  note_filters();
}

}  // namespace

LeasePath* running_leases() {
  if (g_off.load(std::memory_order_acquire)) return nullptr;
  LeasePath* leases = g_leases.load(std::memory_order_acquire);
  if (leases == nullptr) [[unlikely]] {
    if (has_new_filter()) {
      g_off.store(true, std::memory_order_release);
      return nullptr;
    }
    const ProcessLock lock(g_starting);
    leases = g_leases.load(std::memory_order_acquire);
    if (leases == nullptr && !g_off.load()) {
      if (const Error error = start(leases))
        warn("%s: memory is registered as without Pinion", error.message);
      g_leases.store(leases, std::memory_order_release);
      g_off.store(leases == nullptr, std::memory_order_release);
    }
  }
  return leases != nullptr && leases == LeasePath::running() ? leases : nullptr;
}

LeasePath* leases_that_run() {
  LeasePath* const leases = g_leases.load(std::memory_order_acquire);
  return leases != nullptr && leases == LeasePath::running() && !g_forked.load(std::memory_order_acquire)
             ? leases
             : nullptr;
}

LeasePath* started_leases() { return g_leases.load(std::memory_order_acquire); }

bool is_in_child() { return g_forked.load(std::memory_order_acquire); }

}  // namespace pinion::verbs
