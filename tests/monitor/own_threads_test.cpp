// Pinion's threads have their terms from the process, and none from the thread that asks for them.
#include "monitor/own_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/in_child.h"

namespace pinion {
namespace {

struct Terms {
  cpu_set_t cpus{};
  int policy = -1, nice = -1, traps = -1, rounding = -1;
  bool blocks_all = false;
  std::string name;

  static Terms of_this_thread() {
    Terms terms;
    ::sched_getaffinity(0, sizeof terms.cpus, &terms.cpus);
    terms.policy = ::sched_getscheduler(0);
    terms.nice = ::getpriority(PRIO_PROCESS, 0);
    terms.traps = ::fegetexcept();
    terms.rounding = std::fegetround();
    sigset_t blocked;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    terms.blocks_all = true;
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGTERM, SIGUSR1, SIGPROF, SIGCHLD})
      terms.blocks_all = terms.blocks_all && sigismember(&blocked, signal) == 1;
    char name[16] = "";
    ::prctl(PR_GET_NAME, name);
    terms.name = name;
    return terms;
  }
};

Terms terms_of_own_thread() {
  Terms terms;
  start_own_thread("pinion-test", [&] { terms = Terms::of_this_thread(); }).join();
  return terms;
}

void expect_the_process_terms(const Terms& process, const Terms& own) {
  EXPECT_TRUE(CPU_EQUAL(&own.cpus, &process.cpus));
  EXPECT_EQ(own.policy, SCHED_OTHER);
  EXPECT_EQ(own.nice, process.nice);
  EXPECT_EQ(own.traps, 0);
  EXPECT_EQ(own.rounding, FE_TONEAREST);
  EXPECT_TRUE(own.blocks_all);
  EXPECT_EQ(own.name, "pinion-test");
}

/// Makes of the calling thread what a program may make of one of its own.
void lower_this_thread(const Terms& process) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &process.cpus)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  ASSERT_EQ(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19), 0);
  const sched_param none{};
  ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
  ::feenableexcept(FE_DIVBYZERO | FE_INVALID);
  std::fesetround(FE_UPWARD);
}

TEST(OwnThreads, TakeNothingFromTheThreadThatAsks) {
  const Terms process = Terms::of_this_thread();
  // Without the privilege to raise a priority: then the keeper must have been there before.
  test::in_child([&] {
    ASSERT_TRUE(::geteuid() != 0 || ::setresuid(65534, 65534, 65534) == 0);
    prepare_own_threads();
    EXPECT_EQ(keeper_threads(), 1);
    lower_this_thread(process);
    expect_the_process_terms(process, terms_of_own_thread());
  });
}

TEST(OwnThreads, AKeeperThatALowThreadMakesIsOrdinaryWhereThatIsAllowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "raising a priority takes a privilege";
  const Terms process = Terms::of_this_thread();
  test::in_child([&] {
    lower_this_thread(process);
    expect_the_process_terms(process, terms_of_own_thread());
  });
}

TEST(OwnThreads, AForkedChildMakesItsOwn) {
  const Terms process = Terms::of_this_thread();
  expect_the_process_terms(process, terms_of_own_thread());
  test::in_child([&] {
    EXPECT_EQ(keeper_threads(), 0);
    expect_the_process_terms(process, terms_of_own_thread());
    EXPECT_EQ(keeper_threads(), 1);
  });
}

TEST(OwnThreads, ServeManyAtATime) {
  std::atomic<int> ran{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i)
    askers.emplace_back([&] {
      for (int j = 0; j < 20; ++j) start_own_thread("pinion-test", [&] { ++ran; }).join();
    });
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(ran, 160);
}

// A launcher binds its ranks to a core each; Pinion's threads go where the launcher may.
TEST(OwnThreads, OfABoundRankRunWhereItsLauncherDoes) {
  const Terms process = Terms::of_this_thread();
  if (CPU_COUNT(&process.cpus) < 2) GTEST_SKIP() << "one core";
  for (const bool is_rank : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      cpu_set_t one;
      CPU_ZERO(&one);
      for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &process.cpus)) CPU_SET(cpu, &one);
      ::sched_setaffinity(0, sizeof one, &one);
      for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
        ::unsetenv(name);
      if (is_rank) ::setenv("PMI_RANK", "0", 1);
      ::setenv("EXPECTED_CPUS", std::to_string(is_rank ? CPU_COUNT(&process.cpus) : 1).c_str(), 1);
      ::execl("/proc/self/exe", "bound", "--gtest_also_run_disabled_tests",
              "--gtest_filter=OwnThreads.DISABLED_HaveThatManyCpus", nullptr);
      ::_exit(127);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "rank: " << is_rank;
  }
}

TEST(OwnThreads, DISABLED_HaveThatManyCpus) {
  const Terms own = terms_of_own_thread();
  EXPECT_EQ(std::to_string(CPU_COUNT(&own.cpus)), ::getenv("EXPECTED_CPUS"));
}

}  // namespace
}  // namespace pinion
