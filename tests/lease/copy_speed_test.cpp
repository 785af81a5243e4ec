// The file by which a user's processes tell each other how fast the machine copies, in the hands of others.
#include "lease/copy_speed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <limits>
#include <string>

#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

/// No machine copies so slowly, or so exactly.
constexpr double kKept = 0.015625;

class KnownCopySpeed : public testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/pinion-copies-" + std::to_string(::geteuid()); }
  double known() const { return known_copy_speed(directory_.path()); }
  void keep(double speed, mode_t mode = 0600) const {
    std::ofstream(path(), std::ios::binary).write(reinterpret_cast<const char*>(&speed), sizeof speed);
    ::chmod(path().c_str(), mode);
  }
  void set_age(time_t seconds) const {
    const timespec then{::time(nullptr) - seconds, 0}, times[] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, path().c_str(), times, 0), 0);
  }

  const TemporaryDirectory directory_;
};

TEST_F(KnownCopySpeed, IsMeasuredOnceForAll) {
  const double measured = known();
  EXPECT_GT(measured, 0.05);
  EXPECT_EQ(known(), measured);
  keep(kKept);
  EXPECT_EQ(known(), kKept);
}

TEST_F(KnownCopySpeed, AnOldOneIsMeasuredAnew) {
  keep(kKept);
  set_age(2 * 3600);
  EXPECT_NE(known(), kKept);
  EXPECT_NE(known(), kKept);
  keep(kKept);
  set_age(-60);
  EXPECT_NE(known(), kKept) << "a clock that was set back";
}

TEST_F(KnownCopySpeed, WhatOthersMayHaveWrittenIsNotBelieved) {
  keep(kKept, 0666);
  EXPECT_NE(known(), kKept);
  ASSERT_EQ(::unlink(path().c_str()), 0);
  keep(kKept);
  ASSERT_EQ(::rename(path().c_str(), (path() + ".real").c_str()), 0);
  ASSERT_EQ(::symlink((path() + ".real").c_str(), path().c_str()), 0);
  EXPECT_NE(known(), kKept);
}

TEST_F(KnownCopySpeed, WhatIsNoSpeedIsMeasuredAnew) {
  for (const double speed : {0., -1., 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    keep(speed);
    const double measured = known();
    EXPECT_GT(measured, 0.05);
    EXPECT_LT(measured, 1e4);
    EXPECT_EQ(known(), measured);
  }
  std::ofstream(path(), std::ios::trunc) << "x";
  EXPECT_GT(known(), 0.05);
}

TEST_F(KnownCopySpeed, WhereNothingMayBeWrittenItIsMeasured) {
  EXPECT_GT(known_copy_speed(directory_.path() + "/none"), 0.05);
  test::in_child([&] {
    const rlimit none{0, 0};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
    ::signal(SIGXFSZ, SIG_DFL);
    EXPECT_GT(known(), 0.05);
  });
}

}  // namespace
}  // namespace pinion
