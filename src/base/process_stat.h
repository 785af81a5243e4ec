// What the kernel says of a process (/proc/PID/stat). Ordinary code; allocates nothing.
#pragma once

#include <cstdint>

namespace pinion {

struct ProcessStat {
  bool read = false;  ///< false: there is no such process, or no /proc
  int parent = 0;
  bool ended = false;         ///< only its exit status is left
  std::uint64_t started = 0;  ///< clock ticks since boot
};
ProcessStat process_stat(int process);

/// Whether a process that was started then is there no more. Not without proof: where nothing can be read of
/// a process that exists, it lives.
bool has_ended(int process, std::uint64_t started);

}  // namespace pinion
