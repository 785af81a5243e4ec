#include "engine/run_memory.h"

#include <new>

namespace pinion {

namespace {

constinit std::mutex g_mutex;  ///< guards the list
constinit RunMemory* g_spare = nullptr;

}  // namespace

RunMemory& RunMemory::take() {
  RunMemory* memory = nullptr;
  {
    std::lock_guard lock(g_mutex);
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
  std::lock_guard lock(g_mutex);
  memory.next_spare = g_spare;
  g_spare = &memory;
}

void RunMemory::abandon_after_fork() {
  new (&g_mutex) std::mutex;
  g_spare = nullptr;
}

}  // namespace pinion
