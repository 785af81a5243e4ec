// A program that has a userfaultfd of its own: it gets the memory that Pinion's watched. Each case runs in a
// process of its own, as giving way is permanent.
#include "monitor/programs_userfaultfd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "monitor/monitor.h"
#include "monitor/system_call.h"
#include "monitor/userfault.h"
#include "support/eventually.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

constexpr int kFlags = O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY;

int g_exposed = 0;
constexpr HookCallbacks kCallbacks{
    .begin = [](const MemoryChange&) { return Answer::proceed; },
    .end = [](Range) {},
    .exposed = [] { ++g_exposed; },
    .appeared = [](const NewMapping&) {},
    .bracketed = [](Range) { return false; },
    .unloaded = [] {},
};

class ProgramsUserfaultfd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "no threads after a fork";
    if (const Error refused = userfaultfd_refused()) GTEST_SKIP() << refused.message;
  }

  static Range map() {
    const std::size_t bytes = 4 * page_size();
    return Range::of(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                     bytes);
  }
  /// The errno of UFFDIO_REGISTER, or 0.
  static int serve(long fd, Range range) {
    uffdio_api api{};
    api.api = UFFD_API;
    ::ioctl(static_cast<int>(fd), UFFDIO_API, &api);
    uffdio_register request{};
    request.range = {range.begin, range.bytes()};
    request.mode = UFFDIO_REGISTER_MODE_MISSING;
    return ::ioctl(static_cast<int>(fd), UFFDIO_REGISTER, &request) == 0 ? 0 : errno;
  }
  /// Opens one by code of the program's own, which the hooks do not see.
  static long open_unseen() { return raw_system_call(SYS_userfaultfd, arguments_of(kFlags)); }

  static void expect_way_given(MemoryMonitor& monitor) {
    EXPECT_EQ(g_exposed, 1) << "events are no longer seen";
    EXPECT_FALSE(monitor.repair().complete) << "for good";
    EXPECT_EQ(monitor.watch(map()).code, EBUSY);
    EXPECT_TRUE(userfaultfd_refused());
  }
};

TEST_F(ProgramsUserfaultfd, IsSeenAtItsSystemCall) {
  test::in_child([] {
    const StartedMonitor started = start_monitor(MonitorKind::libc_userfaultfd, kCallbacks);
    ASSERT_FALSE(started.missing) << started.missing.message;
    const Range memory = map();
    ASSERT_FALSE(started.monitor->watch(memory));
    const long unseen = open_unseen();
    EXPECT_EQ(serve(unseen, memory), EBUSY) << "two cannot have the same memory";
    ::close(static_cast<int>(unseen));
    g_exposed = 0;
    EXPECT_EQ(serve(::syscall(SYS_userfaultfd, kFlags), memory), 0);
    expect_way_given(*started.monitor);
  });
}

TEST_F(ProgramsUserfaultfd, IsSeenAmongItsFiles) {
  test::in_child([] {
    const StartedMonitor started = start_monitor(MonitorKind::userfaultfd, kCallbacks);
    ASSERT_FALSE(started.missing) << started.missing.message;
    const Range memory = map();
    ASSERT_FALSE(started.monitor->watch(memory));
    g_exposed = 0;
    const long fd = open_unseen();
    EXPECT_TRUE(test::eventually([&] { return started.monitor->watch(map()).code == EBUSY; }));
    EXPECT_EQ(serve(fd, memory), 0);
    expect_way_given(*started.monitor);
  });
}

TEST_F(ProgramsUserfaultfd, IsLeftAloneFromTheStart) {
  test::in_child([] {
    const long fd = open_unseen();
    EXPECT_TRUE(program_has_userfaultfd(-1));
    EXPECT_FALSE(program_has_userfaultfd(static_cast<int>(fd)));
    EXPECT_TRUE(start_monitor(MonitorKind::userfaultfd, kCallbacks).missing);
    EXPECT_EQ(serve(fd, map()), 0);
  });
}

/// A program that only asks whether it might have one goes on as before.
TEST_F(ProgramsUserfaultfd, ARefusedCallIsNone) {
  test::in_child([] {
    const StartedMonitor started = start_monitor(MonitorKind::libc_userfaultfd, kCallbacks);
    ASSERT_FALSE(started.missing) << started.missing.message;
    EXPECT_EQ(::syscall(SYS_userfaultfd, ~0), -1);
    EXPECT_FALSE(started.monitor->watch(map()));
  });
}

}  // namespace
}  // namespace pinion
