#include "quiet_session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace pinion::cli {

namespace {

/// Above all usual work, below the range where the kernel's own threads suffer.
constexpr char kWeight[] = "-12";

pid_t g_child = 0;

void pass_on(int signal) { ::kill(-g_child, signal); }

[[noreturn]] void wait_for_child() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, pass_on);
  int status = 0;
  while (::waitpid(g_child, &status, 0) < 0 && errno == EINTR) {
  }
  ::_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

int write_weight() {
  const int file = ::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const int failed = ::write(file, kWeight, sizeof kWeight - 1) < 0 ? errno : 0;
  ::close(file);
  return failed;
}

}  // namespace

std::string enter_quiet_session() {
  // A leader of its group, as a shell starts commands, cannot make a session.
  const pid_t child = ::fork();
  if (child < 0)
    return fmt::format("Timing is not protected from other work: fork: {}.", std::strerror(errno));
  if (child > 0) {
    g_child = child;
    wait_for_child();
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setsid();
  if (const int failed = write_weight())
    return fmt::format("Timing is not protected from other work: /proc/self/autogroup: {}.",
                       std::strerror(failed));
  return fmt::format("Measured in a session of its own with {} in /proc/self/autogroup.", kWeight);
}

}  // namespace pinion::cli
