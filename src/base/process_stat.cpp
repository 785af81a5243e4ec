#include "base/process_stat.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pinion {

ProcessStat process_stat(int process) {
  ProcessStat stat;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return stat;
  char text[1024];
  const ssize_t n = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (n <= 0) return stat;
  text[n] = '\0';
  // pid (name) state ppid ... ; the name may hold anything, the start time is field 22.
  const char* at = std::strrchr(text, ')');
  for (int number = 3; number <= 22; ++number) {
    at = at ? std::strchr(at + 1, ' ') : nullptr;
    if (!at) return stat;
    if (number == 3) stat.ended = at[1] == 'Z' || at[1] == 'X';
    if (number == 4) stat.parent = std::atoi(at + 1);
    if (number == 22) stat.started = std::strtoull(at + 1, nullptr, 10);
  }
  stat.read = true;
  return stat;
}

std::uint64_t pid_namespace(int process) {
  char path[32] = "/proc/self/ns/pid";
  if (process != 0) std::snprintf(path, sizeof path, "/proc/%d/ns/pid", process);
  struct stat space {};
  return ::stat(path, &space) == 0 ? space.st_ino : 0;
}

bool has_ended(int process, std::uint64_t started) {
  if (::kill(process, 0) != 0 && errno == ESRCH) return true;
  const ProcessStat stat = process_stat(process);
  return stat.read && (stat.ended || stat.started != started);
}

}  // namespace pinion
