#include "helper/helper_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <system_error>
#include <utility>

#include "base/futex.h"
#include "base/on_monotonic.h"
#include "monitor/own_threads.h"

namespace pinion {

namespace {

// A short slice (Linux 6.12+) makes a waking thread preempt long-running ones early; older kernels ignore it.
constexpr Duration kShortSlice = 100 * kMicrosecond;

/// 0: the system's.
void set_slice(Duration slice) {
  struct {
    std::uint32_t size = 48, policy = static_cast<std::uint32_t>(::sched_getscheduler(0));
    std::uint64_t flags = 0;
    std::int32_t nice = ::getpriority(PRIO_PROCESS, 0);
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  attributes.runtime = static_cast<std::uint64_t>(slice);
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/// Lets the helper run soon after its timer fires, although the cores are busy.
void prepare_thread() {
  ::prctl(PR_SET_TIMERSLACK, 1);
  set_slice(kShortSlice);
}

/// The kernel's number of a thread; 0: not known. The number of its CPU clock holds it (CPUCLOCK_PID).
pid_t number_of(pthread_t thread) {
  clockid_t clock{};
  return ::pthread_getcpuclockid(thread, &clock) == 0 ? ~(clock >> 3) : 0;
}

}  // namespace

OrdinarySlice::OrdinarySlice() { set_slice(0); }
OrdinarySlice::~OrdinarySlice() { set_slice(kShortSlice); }

Error HelperThread::start(std::function<void()> work, const std::function<void(pid_t)>& open_files) {
  Error error;
  runs_.store(1, std::memory_order_relaxed);
  try {
    thread_ = start_own_thread("pinion-helper", [this, work = std::move(work)] {
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
