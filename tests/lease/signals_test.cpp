// Signals whose handlers never return to the acquire or release that they have interrupted, or that fork
// there: a timer sends them at any moment. Afterwards all waits end, and a process that ends so has a whole
// log.
#include <gtest/gtest.h>
#include <pinion/pinion.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "process/engine.h"
#include "support/deterministic_scheduler.h"
#include "support/runlog_files.h"

namespace pinion::test {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 16;
constexpr int kExited = 7;

void must(bool holds) {
  if (!holds) ::_exit(99);
}

/// Its status, or -1 when it still runs after a minute.
int status_of(pid_t child) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int status = 0; std::chrono::steady_clock::now() < deadline; ::usleep(1000))
    if (::waitpid(child, &status, WNOHANG) == child) return status;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

Range map_range(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  must(memory != MAP_FAILED);
  return Range::of(memory, bytes);
}

/// One log, and all of it.
[[maybe_unused]] void expect_whole_log(const std::string& directory, std::uint64_t least_acquires) {
  std::size_t logs = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    runlog::Log log;
    const Error error = runlog::read_log(file.path(), log);
    ASSERT_FALSE(error) << error.message;
    EXPECT_TRUE(log.live.complete);
    EXPECT_GE(log.live.counters.acquires, least_acquires);
    ++logs;
  }
  EXPECT_EQ(logs, 1u);
}

/// A device whose deregistrations on the helper's side hang.
class StuckDevice final : public Device {
 public:
  const char* name() const override { return "stuck"; }
  std::string description() const override { return "registers nothing"; }
  DeviceCapabilities capabilities() const override { return {}; }
  Registration register_range(Range, Access access, Actor) override { return {{}, {}, access}; }
  Error deregister(const RegistrationKey&, Actor actor) override {
    while (actor == Actor::helper) ::pause();
    return {};
  }
  void abandon_after_fork() override {}
};

// Here a handler that exits has interrupted malloc, whose lock the helper then waits for.
TEST(Signals, AnExitWaitsForNoHelperThatIsStuck) {
  const TemporaryDirectory logs;
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string options = "retention=leave-pinned,device=pin,log=" + logs.path();
    must(pinion_start(options.c_str()) == 0 && std::atexit(Engine::stop_at_exit) == 0);
    Error error;
    Engine& engine = *Engine::running();
    const int domain = engine.domains().add(std::make_unique<StuckDevice>(), error);
    must(domain >= 0);
    Transfer transfer;
    must(engine.lease_path().lease(*this_thread(), domain, {ticks_now(), 1, CallKind::api}, map_range(kBytes),
                                   Access::all, transfer, Refusal::report));
    engine.lease_path().release(*this_thread(), transfer);
    std::exit(kExited);
  }
  const int status = status_of(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExited) << status;
  for (const auto& file : std::filesystem::directory_iterator(logs.path())) {
    runlog::Log log;
    const Error error = runlog::read_log(file.path(), log);
    ASSERT_FALSE(error) << error.message;
    EXPECT_FALSE(log.live.complete);
    EXPECT_EQ(log.live.counters.acquires, 1u);
  }
}

// ThreadSanitizer's own code takes locks, so its programs cannot be left at arbitrary moments.
#if !defined(__SANITIZE_THREAD__)

sigjmp_buf g_back;

/// `handler` interrupts the main thread, the only one that takes signals, within the next microseconds.
class Interruption {
 public:
  explicit Interruption(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGUSR1;
    must(::sigaction(SIGUSR1, &action, nullptr) == 0 &&
         ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0);
  }
  ~Interruption() { ::timer_delete(timer_); }

  void come() {
    itimerspec soon{};
    soon.it_value.tv_nsec = std::uniform_int_distribution<long>(1, 40'000)(random_);
    must(::timer_settime(timer_, 0, &soon, nullptr) == 0);
  }

 private:
  timer_t timer_{};
  std::mt19937 random_{std::random_device{}()};
};

struct User {
  explicit User(const std::string& options) {
    must(pinion_start(options.c_str()) == 0 && pinion_domain_open("pin", nullptr, &domain) == 0);
  }
  /// A jump may have left a lease out, so the domain goes after the run.
  static void end() { must(pinion_stop() == 0 && pinion_domain_close(domain) == 0); }
  bool use(Range range) const {
    pinion_lease lease = PINION_LEASE_INIT;
    void* const begin = reinterpret_cast<void*>(range.begin);
    return pinion_acquire(domain, begin, range.bytes(), PINION_ACCESS_READ, &lease) == 0 &&
           pinion_release(&lease) == 0;
  }
  static inline pinion_domain* domain = nullptr;  ///< static: a process that exits still has it
};

TEST(Signals, AJumpOutOfAnAcquireLeavesNothingToWaitFor) {
  ::alarm(120);  // ends a test that hangs
  const User user("retention=on-demand,device=pin");
  const Address memory = map_range(2 * kBytes).begin;
  const Range range{memory, memory + kBytes}, beside{memory + kBytes / 2, memory + 3 * kBytes / 2};
  must(user.use(range));
  Interruption jump([](int) { siglongjmp(g_back, 1); });
  const int tries = static_cast<int>(300 * test_scale());
  for (int tried = 0; tried < tries; ++tried) {
    if (sigsetjmp(g_back, 1) == 0) {
      jump.come();
      for (;;) must(user.use(range));
    }
    // Another thread finds all registrations ended and all locks free.
    std::thread([&] {
      EXPECT_TRUE(user.use(range)) << pinion_last_error();
      EXPECT_TRUE(user.use(beside)) << pinion_last_error();
    }).join();
  }
  User::end();
  ::alarm(0);
}

TEST(Signals, AnExitAtAnyMomentEndsTheRunInOrder) {
  const int tries = static_cast<int>(30 * test_scale());
  for (int i = 0; i < tries && !HasFailure(); ++i) {
    const TemporaryDirectory logs;
    const pid_t child = ::fork();
    if (child == 0) {
      const User user("retention=on-demand,device=pin,log=" + logs.path());
      must(std::atexit(Engine::stop_at_exit) == 0);
      const Range range = map_range(kBytes);
      must(user.use(range));
      Interruption exit([](int) { std::exit(kExited); });
      exit.come();
      for (;;) must(user.use(range));
    }
    const int status = status_of(child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExited) << status;
    expect_whole_log(logs.path(), 1);
  }
}

TEST(Signals, AForkAtAnyMomentHoldsNobodyUp) {
  ::alarm(120);
  const User user("retention=leave-pinned,device=pin");
  const Range much = map_range(std::size_t{2} << 20);  // idle: it is let go before a fork
  const Range range = map_range(kBytes);
  static volatile sig_atomic_t forks, failed;
  forks = 0;
  failed = 0;
  Interruption fork([](int) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    if (status_of(child) != 0) failed = 1;
    forks = forks + 1;
  });
  for (int i = 0; i < static_cast<int>(60 * test_scale()); ++i) {
    must(user.use(much));
    fork.come();
    while (forks == i) {
      must(user.use(range));
      must(::madvise(reinterpret_cast<void*>(range.begin), range.bytes(), MADV_DONTNEED) == 0);
    }
  }
  EXPECT_FALSE(failed);
  User::end();
  ::alarm(0);
}

#endif

}  // namespace
}  // namespace pinion::test
