#include "monitor/map_changes.h"

namespace pinion {

constinit std::atomic<int> MapChanges::watchers_{0};
constinit std::atomic<int> MapChanges::under_way_{0};
constinit std::atomic<bool> MapChanges::seen_{false};

MapChanges::Watch::Watch() { watchers_.fetch_add(1, std::memory_order_relaxed); }
MapChanges::Watch::~Watch() { watchers_.fetch_sub(1, std::memory_order_relaxed); }

void MapChanges::forget_after_fork() {
  watchers_.store(0, std::memory_order_relaxed);
  under_way_.store(0, std::memory_order_relaxed);
}

}  // namespace pinion
