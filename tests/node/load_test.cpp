// Whether a core is idle, by the kernel's counters.
#include "node/load.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinion::node {
namespace {

TEST(Load, IdleCoresAndWaitsDecide) {
  EXPECT_TRUE(core_idle({.idle_cores = 0.9}, false));
  EXPECT_FALSE(core_idle({.idle_cores = 0.1}, true));
  for (const bool before : {false, true}) {
    EXPECT_EQ(core_idle({.idle_cores = 0.3}, before), before) << "neither clearly";
    EXPECT_EQ(core_idle({}, before), before) << "not known";
  }
  EXPECT_FALSE(core_idle({.idle_cores = 3, .delay = kMillisecond}, true)) << "others' cores";
}

TEST(Load, TheFirstSampleKeepsTheAnswer) {
  for (const bool before : {false, true}) EXPECT_EQ(Load().core_idle(kSecond, before), before);
}

/// Next to no idle time in so long: an answer that only a sample gives.
bool sampled(Load& load) { return !load.core_idle(1'000'000 * kSecond, true); }

TEST(Load, ASampleTakesNoDescriptorOfTheProgram) {
  Load load;
  load.open(::getpid());
  load.core_idle(kSecond, true);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(sampled(load));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(Load, AProgramThatClosesAllDescriptorsIsSampledToo) {
  Load load;
  load.open(::getpid());
  load.core_idle(kSecond, true);
  ASSERT_EQ(::syscall(SYS_close_range, 3U, ~0U, 0), 0);
  EXPECT_TRUE(sampled(load));
}

}  // namespace
}  // namespace pinion::node
