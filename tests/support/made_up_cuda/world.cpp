#include "support/made_up_cuda/world.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>

#include "support/made_up_cuda/contexts.h"
#include "support/made_up_cuda/controls.h"

namespace pinion::made_up_cuda {

World& world() {
  static World& made = *new World;
  return made;
}

namespace {
std::atomic<std::uint64_t> g_threads{0};
}

Thread::Thread() : number(++g_threads) {}

Thread::~Thread() { end_thread_streams(number); }

Thread& self() {
  // A key's destructor runs at the end of a thread, but not in exit(), where the program may still call.
  static const pthread_key_t key = [] {
    pthread_key_t made;
    if (::pthread_key_create(&made, [](void* thread) { delete static_cast<Thread*>(thread); }) != 0)
      std::abort();
    return made;
  }();
  thread_local Thread* thread = nullptr;
  if (!thread) {
    thread = new Thread;
    ::pthread_setspecific(key, thread);
  }
  return *thread;
}

void hang(const char* call) {
  std::fprintf(stderr, "made-up CUDA: %s waits for more than %lld ms: the program hangs\n", call,
               static_cast<long long>(world().settings.longest_wait.count()));
  std::abort();
}

Entry::Entry(const char* symbol) : name(symbol) { know_entry(*this); }

Call::Call(Entry& entry) : entry_(entry) {
  entry.calls.fetch_add(1, std::memory_order_relaxed);
  notice_call(entry.name);
  refuse_in_fork(entry.name);
  lock_ = Lock(world().mutex);
}

Result Call::begin(Need need) {
  World& w = world();
  if (const Result injected = take_failure(entry_.name)) return injected;
  if (need == Need::kNothing) return kSuccess;
  if (w.exited) {
    if (!w.settings.strict_exit) return kDeinitialized;
    std::fprintf(stderr, "made-up CUDA: %s is called after the driver's exit handler\n", entry_.name);
    std::abort();
  }
  if (!w.initialized || w.forked) return kNotInitialized;
  if (self().in_callback > 0) return kNotPermitted;
  context_ = current_context();
  if (need == Need::kInitialized) return kSuccess;
  if (!context_)
    return self().contexts.empty() || !self().contexts.back() ? kInvalidContext : kContextDestroyed;
  return context_->sticky;
}

StreamPointer Call::stream(const void* handle, Default meaning) const {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value > 2) return world().streams.find(handle);
  if (!context_) return nullptr;
  const bool per_thread = value == 2 || (value == 0 && meaning == Default::kPerThread);
  return per_thread ? thread_stream(context_) : context_->legacy;
}

}  // namespace pinion::made_up_cuda
