// The monitors, one of each in a process. For monitor.cpp; all others call monitor_of().
#pragma once

#include "monitor/hook_self_test.h"
#include "monitor/monitor.h"

namespace pinion {

MemoryMonitor& libc_monitor();
MemoryMonitor& symbols_monitor();
MemoryMonitor& userfaultfd_monitor();
MemoryMonitor& brackets_monitor();

/// Changes that bypass every replacement of libc's functions.
std::vector<const char*> hook_blind_spots();

}  // namespace pinion
