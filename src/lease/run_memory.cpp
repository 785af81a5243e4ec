#include "lease/run_memory.h"

#include "base/process_mutex.h"

namespace pinion {

namespace {

constinit ProcessMutex g_mutex;  ///< guards the list
constinit RunMemory* g_spare = nullptr;

}  // namespace

/// No other thread knows a spare one.
RunMemory& RunMemory::take() NO_THREAD_SAFETY_ANALYSIS {
  RunMemory* memory = nullptr;
  {
    const ProcessLock lock(g_mutex);
    memory = g_spare;
    if (memory) g_spare = memory->next_spare;
  }
  if (!memory) return *new RunMemory;
  memory->events.forget();
  memory->slots_used = 0;
  memory->told = {};
  memory->lateness = {};
  return *memory;
}

void RunMemory::give(RunMemory& memory) {
  const ProcessLock lock(g_mutex);
  memory.next_spare = g_spare;
  g_spare = &memory;
}

/// The child's only thread needs no lock.
void RunMemory::abandon_after_fork() NO_THREAD_SAFETY_ANALYSIS { g_spare = nullptr; }

}  // namespace pinion
