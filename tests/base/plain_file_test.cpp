#include "base/plain_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

class PlainFile : public ::testing::Test {
 protected:
  std::string at(const char* name) const { return directory_.path() + "/" + name; }
  void write(const char* name, const char* text) const { std::ofstream(at(name)) << text; }
  std::string content(const char* name) const {
    std::ifstream file(at(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect_refused(int file, int code) const {
    const int found = errno;
    EXPECT_EQ(file, -1);
    EXPECT_EQ(found, code);
  }

  TemporaryDirectory directory_;
};

TEST_F(PlainFile, ALinkIsNotFollowed) {
  write("mine", "Dear all");
  fs::create_symlink(at("mine"), at("link"));
  for (const int access : {O_RDONLY, O_RDWR}) expect_refused(open_plain_file(at("link"), access), ELOOP);
  expect_refused(create_plain_file(at("link")), EEXIST);
  EXPECT_EQ(content("mine"), "Dear all");
}

TEST_F(PlainFile, ADanglingLinkCreatesNothing) {
  fs::create_symlink(at("nothing"), at("link"));
  expect_refused(create_plain_file(at("link")), EEXIST);
  expect_refused(open_plain_file(at("link"), O_RDWR), ELOOP);
  EXPECT_FALSE(fs::exists(at("nothing")));
}

TEST_F(PlainFile, AReplacedLinkLeavesItsTargetAlone) {
  write("mine", "Dear all");
  fs::create_symlink(at("mine"), at("link"));
  const int file = replace_plain_file(at("link"));
  ASSERT_GE(file, 0);
  EXPECT_TRUE(write_whole(file, "new"));
  ::close(file);
  EXPECT_EQ(content("mine"), "Dear all");
  EXPECT_EQ(content("link"), "new");
  EXPECT_FALSE(fs::is_symlink(at("link")));
}

TEST_F(PlainFile, PipesAndDirectoriesAreRefusedWithoutWaiting) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  for (const int access : {O_RDONLY, O_RDWR}) {
    expect_refused(open_plain_file(at("fifo"), access), EINVAL);
    expect_refused(open_plain_file(directory_.path(), access), EINVAL);
    expect_refused(open_plain_file("/dev/null", access), EINVAL);
  }
  for (const std::string& path : {at("fifo"), directory_.path(), std::string("/dev/zero")})
    expect_refused(open_named_file(path), EINVAL);
  expect_refused(open_plain_file(at("missing"), O_RDONLY), ENOENT);
}

TEST_F(PlainFile, ARegularFileIsReadUpToTheGivenSize) {
  write("mine", "Dear all");
  const int file = open_plain_file(at("mine"), O_RDONLY);
  ASSERT_GE(file, 0);
  std::string bytes;
  EXPECT_TRUE(read_up_to(file, 4, bytes));
  EXPECT_EQ(bytes, "Dear");
  EXPECT_TRUE(read_up_to(file, 100, bytes));
  EXPECT_EQ(bytes, " all");
  ::close(file);
}

// The kernel would send SIGXFSZ.
// A profiler's timer interrupts the kernel while it takes the memory, and undoes what it has taken.
TEST_F(PlainFile, SpaceIsTakenUnderSignals) {
  test::in_child([] {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &action, nullptr);
    const itimerval often{{0, 20}, {0, 20}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    constexpr std::uint64_t kBytes = std::uint64_t{16} << 20;
    const int file = ::memfd_create("space", MFD_CLOEXEC);
    EXPECT_EQ(take_file_space(file, 0, kBytes), 0);
    struct stat status {};
    ::fstat(file, &status);
    EXPECT_EQ(static_cast<std::uint64_t>(status.st_blocks) * 512, kBytes);
  });
}

TEST_F(PlainFile, AWriteBeyondTheFileSizeLimitFails) {
  test::in_child([&] {
    const rlimit limit{12, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const int file = create_plain_file(at("mine"));
    EXPECT_TRUE(write_whole(file, "Dear all"));
    EXPECT_FALSE(write_whole(file, "of you"));
    EXPECT_EQ(errno, EFBIG);
    EXPECT_TRUE(write_whole(file, "..."));
  });
  EXPECT_EQ(content("mine"), "Dear all...");
}

}  // namespace
}  // namespace pinion
