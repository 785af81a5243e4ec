#include "engine/helper_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <system_error>
#include <utility>

#include "base/futex.h"
#include "base/on_monotonic.h"

namespace pinion {

namespace {

// The helper must avoid the core to which its application thread is bound (Open MPI binds ranks by default).
// It must run soon after its timer fires although the cores are busy.
void prepare_thread() {
  ::prctl(PR_SET_NAME, "pinion-helper");
  ::prctl(PR_SET_TIMERSLACK, 1);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  ::sched_setaffinity(0, sizeof all, &all);  // the kernel keeps the part within the cpuset
  // A short slice (Linux 6.12+) makes a waking thread preempt long-running ones early; older kernels ignore
  // it.
  struct {
    std::uint32_t size = 48, policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100 * kMicrosecond, deadline = 0, period = 0;
  } attributes;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/// The kernel's number of a thread; 0: not known. The number of its CPU clock holds it (CPUCLOCK_PID).
pid_t number_of(pthread_t thread) {
  clockid_t clock{};
  return ::pthread_getcpuclockid(thread, &clock) == 0 ? ~(clock >> 3) : 0;
}

}  // namespace

Error HelperThread::start(std::function<void()> work, const std::function<void(pid_t)>& open_files) {
  // Signals belong to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Error error;
  runs_.store(1, std::memory_order_relaxed);
  try {
    thread_ = std::thread([this, work = std::move(work)] {
      prepare_thread();
      while (files_open_.load(std::memory_order_acquire) == 0) futex_wait(files_open_, 0, kNever);
      work();
      runs_.store(0, std::memory_order_release);
      futex_wake(runs_, INT_MAX);
    });
    open_files(number_of(thread_.native_handle()));
    files_open_.store(1, std::memory_order_release);
    futex_wake(files_open_, 1);
  } catch (const std::system_error& failed) {
    runs_.store(0, std::memory_order_relaxed);
    error = Error::make(EAGAIN,
                        "the helper thread cannot be started (%s): allow one thread more (`ulimit -u`, the "
                        "cgroup's pids.max, memory for its stack)",
                        failed.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void HelperThread::ask_to_end() {
  stopping_.store(true, std::memory_order_release);
  bell_.wake();
}

bool HelperThread::await_end(const std::function<std::uint32_t()>& progress) {
  constexpr Duration kPatience = 3 * kSecond, kMost = 60 * kSecond;
  const Time begin = clock_.now();
  std::uint32_t before = progress();
  Time deadline = begin + kPatience;
  while (runs_.load(std::memory_order_acquire) != 0) {
    futex_wait(runs_, 1, on_monotonic(clock_, deadline));
    const Time now = clock_.now();
    if (now < deadline) continue;
    const std::uint32_t done = progress();
    if (done == before || now - begin > kMost) return false;
    before = done;
    deadline = now + kPatience;
  }
  return true;
}

}  // namespace pinion
