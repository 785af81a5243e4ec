// Whether memory is short, by the kernel's files below a root of the test's own.
#include "node/pressure.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/temporary_directory.h"

namespace pinion::node {
namespace {

class Pressure : public ::testing::Test {
 protected:
  TemporaryDirectory root;
  Time now = kSecond;

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void node_has(std::uint64_t total_kib, std::uint64_t available_kib) {
    write("/proc/meminfo", "MemTotal:       " + std::to_string(total_kib) + " kB\nMemFree:  17 kB\n" +
                               "MemAvailable:   " + std::to_string(available_kib) + " kB\n");
  }
  static std::string stalls(const std::string& avg10) {
    return "some avg10=" + avg10 + " avg60=77.00 avg300=77.00 total=77\nfull avg10=0.00 avg60=0.00 total=0\n";
  }
  void group(const std::string& path, const std::string& high, const std::string& max, std::uint64_t current,
             std::uint64_t inactive_file = 0) {
    write("/sys/fs/cgroup" + path + "/memory.high", high + "\n");
    write("/sys/fs/cgroup" + path + "/memory.max", max + "\n");
    write("/sys/fs/cgroup" + path + "/memory.current", std::to_string(current) + "\n");
    write("/sys/fs/cgroup" + path + "/memory.stat",
          "anon 5\ninactive_anon 6\ninactive_file " + std::to_string(inactive_file) + "\nactive_file 7\n");
  }
  bool later(NodePressure& pressure) {
    now += NodePressure::kBetweenLooks;
    EXPECT_TRUE(pressure.look(now));
    return pressure.is_short();
  }
};

TEST_F(Pressure, AnswersStayBetweenTheClearCases) {
  EXPECT_TRUE(is_short({.stalled = .10}, false));
  EXPECT_TRUE(is_short({.full = .95}, false));
  EXPECT_TRUE(is_short({.exhausted = 1}, false));
  for (const bool before : {false, true}) {
    EXPECT_EQ(is_short({.stalled = .07, .full = .92, .exhausted = .7}, before), before);
    EXPECT_FALSE(is_short({.stalled = .04, .full = .89, .exhausted = .4}, before));
  }
}

TEST_F(Pressure, NothingIsShortWhereTheKernelTellsNothing) {
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
}

TEST_F(Pressure, TheNodesStallsComeAndGo) {
  write("/proc/pressure/memory", stalls("0.00"));
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  write("/proc/pressure/memory", stalls("10.00"));
  EXPECT_TRUE(later(pressure));
  write("/proc/pressure/memory", stalls("5.20"));
  EXPECT_TRUE(later(pressure));
  write("/proc/pressure/memory", stalls("4.90"));
  EXPECT_FALSE(later(pressure));
}

TEST_F(Pressure, LooksAreCloserWhileMemoryIsShort) {
  write("/proc/pressure/memory", stalls("33.00"));
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_TRUE(pressure.look(now));
  EXPECT_FALSE(pressure.look(now + NodePressure::kBetweenLooksWhileShort - 1));
  write("/proc/pressure/memory", stalls("0.00"));
  EXPECT_TRUE(pressure.look(now += NodePressure::kBetweenLooksWhileShort));
  EXPECT_FALSE(pressure.look(now + NodePressure::kBetweenLooks - 1));
}

TEST_F(Pressure, StallsOfTheOwnGroupCount) {
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/memory.pressure", stalls("12.50"));
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_TRUE(later(pressure));
}

TEST_F(Pressure, AGroupAroundTheOwnOneIsNearItsHighBound) {
  write("/proc/self/cgroup", "0::/job/step\n");
  group("/job/step", "max", "max", 900);
  group("/job", "1000", "2000", 940);
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  group("/job", "1000", "2000", 1020);
  EXPECT_TRUE(later(pressure));
  group("/job", "max", "2000", 1020);
  EXPECT_FALSE(later(pressure)) << "the bound has gone";
  group("/job", "max", "1050", 1020);
  EXPECT_TRUE(later(pressure)) << "memory.max is a bound as well";
}

TEST_F(Pressure, GroupsAroundTheOwnOneTakeFilesForTheirBoundsAlone) {
  write("/proc/self/cgroup", "0::/a/b/c/d/e\n");
  for (const char* path : {"/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/b/c/d/e"}) group(path, "max", "max", 900);
  const auto files = [] {
    const std::filesystem::directory_iterator open("/proc/self/fd");
    return std::distance(begin(open), end(open));
  };
  const auto before = files();
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_EQ(files(), before + 4) << "of the own group";
  group("/a/b", "max", "1000", 990);
  NodePressure bounded(root.path());
  bounded.open();
  EXPECT_EQ(files(), before + 12) << "of two groups";
  EXPECT_TRUE(later(bounded));
}

TEST_F(Pressure, PageCacheOutOfUseLeavesAGroupRoom) {
  write("/proc/self/cgroup", "0::/\n");
  group("", "max", "1000", 1000, 300);
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  group("", "max", "1000", 1000, 30);
  EXPECT_TRUE(later(pressure));
}

TEST_F(Pressure, Version1HasASoftLimitInItsPlace) {
  write("/proc/self/cgroup", "7:cpu:/other\n4:memory:/job\n0::/\n");
  const std::string job = "/sys/fs/cgroup/memory/job";
  write(job + "/memory.limit_in_bytes", "9223372036854771712\n");
  write(job + "/memory.soft_limit_in_bytes", "9223372036854771712\n");
  write(job + "/memory.usage_in_bytes", "1000\n");
  write(job + "/memory.stat", "inactive_file 900\ntotal_inactive_file 20\n");
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  write(job + "/memory.soft_limit_in_bytes", "1010\n");
  EXPECT_TRUE(later(pressure));
}

TEST_F(Pressure, ANodeWithHardlyAnyMemoryLeftIsShort) {
  node_has(8 << 20, 1 << 20);
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  node_has(8 << 20, 300 << 10);
  EXPECT_TRUE(later(pressure));
  node_has(8 << 20, 0);
  EXPECT_TRUE(later(pressure));
  node_has(1 << 30, 30 << 20);
  EXPECT_FALSE(later(pressure)) << "30 GiB of 1 TiB";
}

TEST_F(Pressure, FilesOfAnythingElseAreNoShortage) {
  write("/proc/self/cgroup", "0::/a\n0::\nnonsense\n:::::\n1:memory:\n");
  write("/proc/pressure/memory", "full avg10=99.99\n");
  write("/proc/meminfo", "MemTotal: x\nMemAvailable:");
  group("/a", "-1", "", 5);
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
}

TEST_F(Pressure, AProgramThatClosesAllDescriptorsIsFollowedToo) {
  write("/proc/pressure/memory", stalls("0.00"));
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  ASSERT_EQ(::syscall(SYS_close_range, 3U, ~0U, 0), 0);
  write("/proc/pressure/memory", stalls("50.00"));
  EXPECT_TRUE(later(pressure));
}

TEST_F(Pressure, AProgramThatClosesAllDescriptorsIsFollowedByOneThread) {
  node_has(8 << 20, 1 << 20);
  write("/proc/self/cgroup", "0::/job\n");
  group("/job", "max", "1000", 500);
  NodePressure pressure(root.path());
  pressure.open();
  EXPECT_FALSE(later(pressure));
  ASSERT_EQ(::syscall(SYS_close_range, 3U, ~0U, 0), 0);
  group("/job", "max", "1000", 990);
  EXPECT_TRUE(later(pressure));
  group("/job", "max", "1000", 500);
  EXPECT_FALSE(later(pressure));
}

}  // namespace
}  // namespace pinion::node
