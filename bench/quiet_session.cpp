#include "bench/quiet_session.h"

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

constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};

pid_t g_child = 0;

void pass_on(int signal) {
  if (::kill(-g_child, signal) != 0) ::kill(g_child, signal);  // it has no session yet
}

sigset_t passed_on() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  return set;
}

[[noreturn]] void end_as(int status) {
  if (!WIFSIGNALED(status)) ::_exit(WEXITSTATUS(status));
  // A shell ends its loop for a command that died of Ctrl-C, not for a status.
  const int signal = WTERMSIG(status);
  ::prctl(PR_SET_DUMPABLE, 0);  // the child has left the core
  ::signal(signal, SIG_DFL);
  ::raise(signal);
  ::_exit(128 + signal);
}

[[noreturn]] void wait_for_child(const sigset_t& before) {
  for (const int signal : kPassedOn) ::signal(signal, pass_on);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (::waitpid(g_child, &status, 0) < 0)
    if (errno != EINTR) ::_exit(1);
  end_as(status);
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
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it would take the child's status away
  // A signal in between waits until it can be passed on.
  const sigset_t held = passed_on();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &held, &before);
  const pid_t parent = ::getpid();
  // A leader of its group, as a shell starts commands, cannot make a session.
  const pid_t child = ::fork();
  if (child > 0) {
    g_child = child;
    wait_for_child(before);
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::raise(SIGTERM);
    ::setsid();
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0)
    return fmt::format("Timing is not protected from other work: fork: {}.", std::strerror(errno));
  if (const int failed = write_weight())
    return fmt::format("Timing is not protected from other work: /proc/self/autogroup: {}.",
                       std::strerror(failed));
  return fmt::format("Measured in a session of its own with {} in /proc/self/autogroup.", kWeight);
}

}  // namespace pinion::cli
