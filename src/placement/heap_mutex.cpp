#include "placement/heap_mutex.h"

#include <sys/syscall.h>
#include <time.h>

#include "monitor/system_call.h"

namespace pinion {

void pause_before_try(int number) {
  constexpr int kQuickTries = 100;
  const timespec pause{0, 100'000};
  if (number < kQuickTries)
    raw_system_call(SYS_sched_yield, {});
  else
    raw_system_call(SYS_nanosleep, arguments_of(&pause, 0L));  // unlike libc's, no place to be cancelled
}

bool HeapMutex::comes_free() {
  return holds_soon([this] {
    ++t_held_mutexes;
    const bool free = mutex_.try_lock();
    if (free) mutex_.unlock();
    --t_held_mutexes;
    return free;
  });
}

}  // namespace pinion
