#include "cli/run/group_witness.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pinion::cli {

namespace {

/// Answers until the parent is gone. Holds nothing else open: readers of the parent's output wait for its
/// end.
[[noreturn]] void answer(int socket) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  ::dup2(socket, 0);
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, 1u, ~0u, 0u) != 0)
#endif
    for (int i = 1; i < 1024; ++i) ::close(i);
  for (int signal = 0; ::read(0, &signal, sizeof signal) == sizeof signal;) {
    sigset_t asked;
    sigemptyset(&asked);
    sigaddset(&asked, signal);
    constexpr timespec kAtOnce{};
    const char saw = ::sigtimedwait(&asked, nullptr, &kAtOnce) == signal;
    if (::send(0, &saw, sizeof saw, MSG_NOSIGNAL) != sizeof saw) break;
  }
  ::_exit(0);
}

}  // namespace

GroupWitness::GroupWitness() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  child_ = ::fork();
  if (child_ == 0) answer(ends[1]);
  ::close(ends[1]);
  asked_ = ends[0];
}

GroupWitness::~GroupWitness() {
  if (asked_ >= 0) ::close(asked_);
  if (child_ > 0) ::waitpid(child_, nullptr, 0);
}

bool GroupWitness::saw(int signal) {
  char saw = 0;
  return child_ > 0 && ::send(asked_, &signal, sizeof signal, MSG_NOSIGNAL) == sizeof signal &&
         ::read(asked_, &saw, sizeof saw) == sizeof saw && saw != 0;
}

}  // namespace pinion::cli
