// A process as the kernel shows it (/proc/PID/stat). Ordinary code; allocates nothing.
#pragma once

#include <cstdint>

namespace pinion {

struct ProcessStat {
  bool read = false;  ///< false: the process or /proc is missing
  int parent = 0;
  bool ended = false;         ///< only its exit status is left
  std::uint64_t started = 0;  ///< clock ticks since boot
};
ProcessStat process_stat(int process);

/// The namespace in which a process has its number; 0: it cannot be seen. Of itself: process 0.
std::uint64_t pid_namespace(int process = 0);

/// Whether a process that was started then has ended. This takes proof: an unreadable process counts as
/// alive.
bool has_ended(int process, std::uint64_t started);

}  // namespace pinion
