// Stops other processes of a test. The signal alone does not: a busy machine lets their other threads go on
// until one of them has taken it. Any thread; allocates.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/eventually.h"

namespace pinion::test {

/// Whether all threads of the process are stopped.
inline bool is_stopped(pid_t process) {
  std::error_code gone;
  bool any = false, all = true;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::ifstream file(thread.path() / "status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("State:")) any = true, all = all && line.find('T') != std::string::npos;
  }
  return any && all;
}

/// Returns whether it is stopped, in the end.
[[nodiscard]] inline bool stop(pid_t process) {
  return ::kill(process, SIGSTOP) == 0 && eventually([&] { return is_stopped(process); });
}

}  // namespace pinion::test
