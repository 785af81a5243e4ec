// The choice of the memory monitor, on machines with and without patching of code, with and without
// userfaultfd; each combination in a process of its own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "monitor/code_patch.h"
#include "monitor/monitor.h"
#include "monitor/system_call.h"
#include "monitor/userfault.h"
#include "support/no_code_patching.h"
#include "support/no_userfaultfd.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

constexpr HookCallbacks kIgnore{[](const MemoryChange&) { return Answer::proceed; }, [](Range) {}};

/// "monitor: why not all events are seen", of a new process that has been restricted.
template <class Restrict>
std::string choice(MonitorKind kind, Restrict&& restrict) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    std::string text = "not restricted";
    if (restrict()) {
      const StartedMonitor started = start_monitor(kind, kIgnore);
      text = std::string(started.monitor->name()) + ": " + started.missing.message;
    }
    ::_exit(::write(ends[1], text.data(), text.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  char text[1024];
  const ssize_t bytes = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return std::string(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
}

const auto as_it_is = [] { return true; };

#define NEEDS_USERFAULTFD() \
  if (const Error refused = userfaultfd_refused()) GTEST_SKIP() << refused.message

TEST(MonitorChoice, LibcWhereItSeesAll) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have allocators of their own";
  EXPECT_EQ(choice(MonitorKind::automatic, as_it_is), "libc: ");
}

TEST(MonitorChoice, AsAskedFor) {
  NEEDS_USERFAULTFD();
  for (const MonitorKind kind :
       {MonitorKind::userfaultfd, MonitorKind::libc_userfaultfd, MonitorKind::brackets})
    EXPECT_EQ(choice(kind, as_it_is), std::string(to_string(kind)) + ": ");
}

TEST(MonitorChoice, WhereCodeMayNotBePatchedTheReasonIsTold) {
  const std::string chosen = choice(MonitorKind::libc, [] { return test::refuse_code_patching(); });
  EXPECT_EQ(chosen.rfind("libc: munmap: the system does not let code be patched", 0), 0u) << chosen;
}

/// userfaultfd is no help: it does not report mprotect and shmdt.
TEST(MonitorChoice, WithoutHooksNorSymbolsAutoDoesNotClaimToSeeAll) {
  const std::string chosen = choice(MonitorKind::automatic, [] { return test::refuse_code_patching(); });
  EXPECT_EQ(chosen.rfind("libc: munmap: the system does not let code be patched", 0), 0u) << chosen;
}

/// Another library has redirected syscall(), which the hooks then leave alone.
bool take_syscall_away() {
  static CodePatch patch;
  const auto theirs = +[](long number, long a0, long a1, long a2, long a3, long a4, long a5) {
    const long result = raw_system_call(number, {a0, a1, a2, a3, a4, a5});
    if (!is_error(result)) return result;
    // libstdc++ waits by syscall(), and throws where a wait fails with an unknown errno.
    errno = static_cast<int>(-result);
    return -1L;
  };
  void* const function = ::dlsym(RTLD_DEFAULT, "syscall");
  return !patch.aim(function, "syscall") && !patch.apply(reinterpret_cast<const void*>(theirs));
}

TEST(MonitorChoice, WhereHooksMissWhatTheKernelTellsAutoTakesBoth) {
  NEEDS_USERFAULTFD();
  if (kSanitized) GTEST_SKIP() << "sanitizers have allocators of their own";
  EXPECT_EQ(choice(MonitorKind::automatic, take_syscall_away), "libc+userfaultfd: ");
  const auto without = [] { return take_syscall_away() && test::refuse_userfaultfd(); };
  EXPECT_EQ(choice(MonitorKind::automatic, without), "libc: munmap by syscall(): the event did not arrive");
}

TEST(MonitorChoice, RefusedUserfaultfdIsToldOfOnce) {
  NEEDS_USERFAULTFD();
  const std::string chosen = choice(MonitorKind::userfaultfd, test::refuse_userfaultfd);
  EXPECT_EQ(chosen.rfind("userfaultfd: userfaultfd is refused (Operation not permitted)", 0), 0u) << chosen;
  const std::string both = choice(MonitorKind::libc_userfaultfd, test::refuse_userfaultfd);
  EXPECT_EQ(both.rfind("libc+userfaultfd: userfaultfd: userfaultfd is refused", 0), 0u) << both;
  if (kSanitized) return;
  EXPECT_EQ(choice(MonitorKind::automatic, test::refuse_userfaultfd), "libc: ");
}

TEST(MonitorChoice, SymbolsMustBePreloaded) {
  const std::string chosen = choice(MonitorKind::symbols, as_it_is);
  EXPECT_NE(chosen.find("libpinion-symbols.so is not preloaded"), std::string::npos) << chosen;
}

TEST(Monitor, EachSaysWhatItNeverSees) {
  for (const MonitorKind kind :
       {MonitorKind::libc, MonitorKind::libc_userfaultfd, MonitorKind::symbols,
        MonitorKind::symbols_userfaultfd, MonitorKind::userfaultfd, MonitorKind::brackets}) {
    EXPECT_STREQ(monitor_of(kind).name(), to_string(kind));
    EXPECT_FALSE(monitor_of(kind).blind_spots().empty());
  }
}

/// Every row that userfaultfd claims is seen, and every other row is reported as unseen.
TEST(Monitor, UserfaultfdAloneTellsWhatItDoesNotSee) {
  NEEDS_USERFAULTFD();
  MemoryMonitor& monitor = monitor_of(MonitorKind::userfaultfd);
  ASSERT_TRUE(monitor.start(kIgnore).complete);
  const HookReport report = monitor.self_test();
  monitor.stop();
  EXPECT_TRUE(report.complete) << report.error.message;
  const auto state_of = [&](const char* name) {
    for (const HookStatus& row : report.rows)
      if (std::strcmp(row.name, name) == 0) return row.state;
    ADD_FAILURE() << name;
    return HookState::failed;
  };
  for (const char* seen : {"munmap", "mmap over a mapping", "mremap that moves", "madvise that drops pages",
                           "munmap by syscall()", "munmap without libc"})
    EXPECT_EQ(state_of(seen), HookState::good) << seen;
  for (const char* untold : {"mprotect that takes rights", "shmat over a mapping"})
    EXPECT_EQ(state_of(untold), HookState::unclaimed) << untold;
}

}  // namespace
}  // namespace pinion
