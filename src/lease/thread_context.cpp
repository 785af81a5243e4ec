#include "lease/thread_context.h"

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <new>

#include "lease/thread_end.h"

namespace pinion {

namespace {

std::atomic<ThreadContext*> g_newest{nullptr};
std::atomic<std::uint16_t> g_count{0};
std::atomic<bool> g_forked{false};
pthread_key_t g_key;
bool g_has_key = false;  ///< the program may have taken them all
pthread_once_t g_key_once = PTHREAD_ONCE_INIT;

/// One of each front.
constinit std::array<std::atomic<void (*)(ThreadContext&)>, 4> g_ends{};

void leave(void* left) {
  auto* context = static_cast<ThreadContext*>(left);
  for (const auto& place : g_ends)
    if (const auto end = place.load(std::memory_order_relaxed)) end(*context);
  this_thread_context = nullptr;
  context->state.store(ThreadContext::State::left, std::memory_order_release);
}

void* map_zeroed(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/// One that its thread has left. Records in its ring stay there for the helper, before its successor's.
ThreadContext* reuse() {
  for (ThreadContext* context = all_threads(); context; context = context->next) {
    auto left = ThreadContext::State::left;
    if (context->state.load(std::memory_order_relaxed) == left &&
        context->state.compare_exchange_strong(left, ThreadContext::State::live, std::memory_order_acq_rel))
      return context;
  }
  return nullptr;
}

ThreadContext* create() {
  void* memory = map_zeroed(sizeof(ThreadContext) + sizeof(LeaseCounts));
  void* sites = map_zeroed(sizeof(CallSiteCache));
  if (!memory || !sites) return nullptr;
  auto* context = new (memory) ThreadContext;
  context->sites = static_cast<CallSiteCache*>(sites);
  context->state.store(ThreadContext::State::live, std::memory_order_relaxed);
  context->index = g_count.fetch_add(1, std::memory_order_relaxed);
  context->next = g_newest.load(std::memory_order_relaxed);
  while (!g_newest.compare_exchange_weak(context->next, context, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
  return context;
}

}  // namespace

constinit thread_local ThreadContext* this_thread_context = nullptr;

ThreadContext* this_thread_first() {
  pthread_once(&g_key_once, [] { g_has_key = pthread_key_create(&g_key, leave) == 0; });
  if (!g_has_key) return nullptr;
  ThreadContext* context = reuse();
  if (!context) context = create();
  if (!context) return nullptr;
  this_thread_context = context;
  if (pthread_setspecific(g_key, context) != 0) leave(context);
  return this_thread_context;
}

ThreadContext* all_threads() { return g_newest.load(std::memory_order_acquire); }

std::uint64_t leases_out_at(std::size_t place) {
  return leases_out([place](auto&& visit) {
    for (const ThreadContext* thread = all_threads(); thread; thread = thread->next)
      visit(thread->counted().at[place]);
  });
}

void watch_thread_ends(void (*end)(ThreadContext&)) {
  for (auto& place : g_ends) {
    void (*there)(ThreadContext&) = nullptr;
    if (place.compare_exchange_strong(there, end, std::memory_order_relaxed) || there == end) return;
  }
}

bool is_forked_child() { return g_forked.load(std::memory_order_relaxed); }

void forget_this_thread() {
  g_forked.store(true, std::memory_order_relaxed);
  if (this_thread_context) pthread_setspecific(g_key, nullptr);
  this_thread_context = nullptr;
}

}  // namespace pinion
