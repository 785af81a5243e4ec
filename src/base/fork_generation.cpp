#include "base/fork_generation.h"

#include <pthread.h>

namespace pinion {

constinit std::atomic<std::uint32_t> fork_generation{0};

namespace {

/// The handlers of a child run in the order in which they were added: this one comes first.
[[gnu::constructor]] void watch_forks() {
  ::pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace

}  // namespace pinion
