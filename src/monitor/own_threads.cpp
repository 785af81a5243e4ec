#include "monitor/own_threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <climits>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/futex.h"
#include "base/held_signals.h"
#include "base/process.h"
#include "base/process_mutex.h"

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__
#endif
#endif

extern "C" {
// Of ThreadSanitizer, in a program that is built with it.
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace pinion {

namespace {

/// A time in which ThreadSanitizer leaves this thread's accesses out. It knows the C library's functions that
/// we call, but not our atomic operations, and so it would take each object that another thread hands over
/// for a race of the program's. Where Pinion itself is built with it, all are seen.
class UnwatchedAccesses {
 public:
  UnwatchedAccesses() { call(AnnotateIgnoreReadsBegin), call(AnnotateIgnoreWritesBegin); }
  ~UnwatchedAccesses() { call(AnnotateIgnoreWritesEnd), call(AnnotateIgnoreReadsEnd); }
  UnwatchedAccesses(const UnwatchedAccesses&) = delete;
  UnwatchedAccesses& operator=(const UnwatchedAccesses&) = delete;

 private:
  static void call([[maybe_unused]] void (*annotation)(const char*, int)) {
#ifndef __SANITIZE_THREAD__
    if (annotation != nullptr) annotation(__FILE__, __LINE__);
#endif
  }
};

KernelCpus cpus_of_process(int process) {
  KernelCpus cpus;
  if (::sched_getaffinity(process, sizeof cpus.words, reinterpret_cast<cpu_set_t*>(cpus.words.data())) != 0)
    return {};
  return cpus;
}

/// The terms of the process when libpinion was loaded.
struct FirstTerms {
  KernelCpus cpus = cpus_of_process(0);
  int policy = ::sched_getscheduler(0);
  int nice = ::getpriority(PRIO_PROCESS, 0);
};
const FirstTerms g_first;

/// Gives the calling thread the terms of Pinion's threads, as far as its privileges go.
void take_terms() {
  ::sched_setaffinity(0, sizeof(KernelCpus), reinterpret_cast<const cpu_set_t*>(own_cpus().words.data()));
  const bool is_ordinary = g_first.policy == SCHED_BATCH || g_first.policy == SCHED_IDLE;
  const sched_param none{};
  ::sched_setscheduler(0, is_ordinary ? g_first.policy : SCHED_OTHER, &none);
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  ::setpriority(PRIO_PROCESS, self, g_first.nice);
  std::fesetenv(FE_DFL_ENV);
}

/// Runs `begin` with all signals blocked: threads begun there inherit that.
template <class Begin>
void with_signals_blocked(Begin&& begin) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  begin();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// A thread that is wanted. The asking thread owns it.
struct Request {
  const char* name;
  std::function<void()> work;
  std::thread made;
  std::exception_ptr failure;

  void carry_out() {
    try {
      made = std::thread([called = name, given = std::move(work)]() mutable {
        const UnwatchedAccesses unwatched;
        ::prctl(PR_SET_NAME, called);
        const auto run = std::move(given);
        run();
      });
    } catch (...) {
      failure = std::current_exception();
    }
  }
};

constinit ProcessMutex g_asking;  ///< guards the keeper; one request at a time
constinit std::atomic<bool> g_keeps{false};
constinit std::atomic<Request*> g_request{nullptr};
/// 1: the keeper has its terms. It makes no call for itself after that.
constinit std::atomic<std::uint32_t> g_ready{0};
/// Counts requests, and answers.
constinit std::atomic<std::uint32_t> g_asked{0}, g_answered{0};

[[noreturn]] void keep() {
  const UnwatchedAccesses unwatched;
  ::prctl(PR_SET_NAME, "pinion-keeper");
  take_terms();
  g_ready.store(1, std::memory_order_release);
  futex_wake(g_ready, 1);
  for (std::uint32_t seen = 0;; ++seen) {
    while (g_asked.load(std::memory_order_acquire) == seen) futex_wait(g_asked, seen, kNever);
    g_request.load(std::memory_order_relaxed)->carry_out();
    g_answered.store(seen + 1, std::memory_order_release);
    futex_wake(g_answered, INT_MAX);
  }
}

/// In a forked child, whose parent has the keeper.
void forget_keeper() {
  g_keeps.store(false, std::memory_order_relaxed);
  g_ready.store(0, std::memory_order_relaxed);
  g_asked.store(0, std::memory_order_relaxed);
  g_answered.store(0, std::memory_order_relaxed);
}

void make_keeper() REQUIRES(g_asking) {
  if (g_keeps.load(std::memory_order_relaxed)) return;
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, forget_keeper); });
  with_signals_blocked([] {
    try {
      std::thread(keep).detach();
      while (g_ready.load(std::memory_order_acquire) == 0) futex_wait(g_ready, 0, kNever);
      g_keeps.store(true, std::memory_order_relaxed);
    } catch (const std::system_error&) {
      // The caller's own thread could not be made either.
    }
  });
}

}  // namespace

const KernelCpus& own_cpus() {
  static const KernelCpus cpus = [] {
    KernelCpus all = g_first.cpus;
    if (const int launcher = launcher_of_rank(); launcher > 0) {
      const KernelCpus its = cpus_of_process(launcher);
      for (std::size_t i = 0; i < all.words.size(); ++i) all.words[i] |= its.words[i];
    }
    return all;
  }();
  return cpus;
}

void prepare_own_threads() {
  const HeldSignals held;
  const ProcessLock lock(g_asking);
  make_keeper();
}

std::thread start_own_thread(const char* name, std::function<void()> work) {
  Request request{name, std::move(work), {}, {}};
  {
    const HeldSignals held;
    const ProcessLock lock(g_asking);
    make_keeper();
    if (!g_keeps.load(std::memory_order_relaxed))
      throw std::system_error(EAGAIN, std::generic_category(), "no thread can be made");
    g_request.store(&request, std::memory_order_relaxed);
    const std::uint32_t number = g_asked.fetch_add(1, std::memory_order_release) + 1;
    futex_wake(g_asked, 1);
    while (g_answered.load(std::memory_order_acquire) != number) futex_wait(g_answered, number - 1, kNever);
  }
  if (request.failure) std::rethrow_exception(request.failure);
  return std::move(request.made);
}

int keeper_threads() { return g_keeps.load(std::memory_order_relaxed) ? 1 : 0; }

}  // namespace pinion
