#include "base/own_loading.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <atomic>

namespace pinion {

namespace {

constexpr int kMostWaits = 1000;  ///< of a millisecond each

constinit std::atomic<int> g_loads{0}, g_forks{0};
/// How many of the loads are the calling thread's.
constinit thread_local int t_loads = 0;

/// Whether it came to pass in time.
template <class Condition>
bool wait_for(Condition condition) {
  for (int waits = 0; !condition(); ++waits) {
    if (waits == kMostWaits) return false;
    const timespec millisecond{0, 1'000'000};
    ::nanosleep(&millisecond, nullptr);
  }
  return true;
}

/// Either the fork sees the load, or the load sees the fork: both are announced before they look.
void begin_load() {
  if (t_loads++ != 0) {
    g_loads.fetch_add(1);
    return;
  }
  for (bool in_time = true;;) {
    g_loads.fetch_add(1);
    if (g_forks.load() == 0 || !in_time) return;
    g_loads.fetch_sub(1);
    in_time = wait_for([] { return g_forks.load() == 0; });
  }
}

void end_load() {
  --t_loads;
  g_loads.fetch_sub(1);
}

[[gnu::constructor]] void hold_forks_off() {
  const auto before = [] {
    g_forks.fetch_add(1);
    wait_for([] { return g_loads.load() == t_loads; });
  };
  const auto in_parent = [] { g_forks.fetch_sub(1); };
  const auto in_child = [] {
    g_forks.store(0);
    g_loads.store(t_loads);
  };
  ::pthread_atfork(before, in_parent, in_child);
}

}  // namespace

void* load_library(const char* file, int flags) {
  begin_load();
  void* const library = ::dlopen(file, flags);
  end_load();
  if (library == nullptr && (flags & RTLD_NOLOAD) != 0) ::dlerror();
  return library;
}

}  // namespace pinion
