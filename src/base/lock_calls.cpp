#include "base/lock_calls.h"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <cstdint>

#include "base/futex.h"

namespace pinion {

void make_lock_calls() {
  ::sched_yield();
  const timespec refused{0, -1};
  ::nanosleep(&refused, nullptr);
  std::atomic<std::uint32_t> nobody{0};
  futex_wake(nobody, 1);
}

}  // namespace pinion
