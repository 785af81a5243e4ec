// Holds back the calling thread's signals while it has locks, or registrations half made.
//
// A handler may end the process, fork, or jump away and never return. Had it interrupted a thread with a lock
// of Pinion's, all others would wait for that lock forever. So a thread holds its signals from the first lock
// to the last; they arrive as soon as it lets go. This takes two system calls; a hit skips them. Faults of
// the thread's own (SIGSEGV and its like) arrive at once: blocked, they would end the process.
//
// Ordinary code, any thread; may be nested. Waiting for another thread belongs into rest(): that thread may
// be stopped by a signal (a stop-the-world collector), and the one that stops it waits for this one's answer.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace pinion {

class HeldSignals {
 public:
  HeldSignals() { hold(); }
  ~HeldSignals() { let_go(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Runs `wait` with the signals that the thread had; `wait` must be free of locks.
  template <class Wait>
  void rest(Wait&& wait) {
    let_go();
    wait();
    hold();
  }

 private:
  void hold() {
    // A cancelled thread leaves like one that jumps.
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before_);
    sigset_t asynchronous;
    sigfillset(&asynchronous);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&asynchronous, fault);
    ::pthread_sigmask(SIG_BLOCK, &asynchronous, &before_);
  }
  void let_go() {
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    ::pthread_setcancelstate(cancel_before_, nullptr);
  }
  sigset_t before_;
  int cancel_before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace pinion
