// Several users of the one engine in a process: two libraries over the C API, or a library and the preload.
#include <pthread.h>

#include <new>

#include "base/held_signals.h"
#include "base/process.h"
#include "base/process_mutex.h"
#include "prepare/preparation.h"
#include "process/engine.h"

namespace pinion {

namespace {

struct Users {
  ProcessMutex mutex;  ///< keeps starting and stopping apart, too
  int count GUARDED_BY(mutex) = 0;
  /// The first of them started the engine, so the last one stops it.
  bool started_here GUARDED_BY(mutex) = false;
};
Users g_users;

// A thread that is missing in a forked child may have held the mutex; and the engine was the parent's.
void forget_users_after_fork() {
  new (&g_users) Users;
  Preparation::forget_after_fork();
}

}  // namespace

Error Engine::join(const Options& options, const JobPlace& place, bool insist) {
  static const int handler = pthread_atfork(nullptr, nullptr, forget_users_after_fork);
  if (handler != 0) return Error::make(handler, "no memory for a fork handler");
  const HeldSignals held;
  const ProcessLock lock(g_users.mutex);
  if (Engine* engine = running()) {
    const std::string runs = format_options(engine->options());
    const std::string wanted = format_options(options);
    if (insist && runs != wanted)
      return Error::make(EBUSY,
                         "Pinion runs in this process with the options '%s' and cannot change to '%s': start "
                         "with the same options, or with NULL to share that run",
                         runs.c_str(), wanted.c_str());
    ++g_users.count;
    return {};
  }
  const Error error = start(options, place, command_line());
  if (error) return error;
  // Users of an engine that was stopped behind their back are users no more.
  g_users.count = 1;
  g_users.started_here = true;
  return {};
}

Error Engine::leave() {
  const HeldSignals held;
  const ProcessLock lock(g_users.mutex);
  if (g_users.count == 0)
    return Error::make(EINVAL, "Pinion was not started in this process, or stopped already");
  if (--g_users.count > 0 || !g_users.started_here) return {};
  g_users.started_here = false;
  Engine* engine = running();
  if (!engine) return {};
  Preparation::end_all();
  stop();
  engine->domains_.drop_devices();
  return {};
}

}  // namespace pinion
