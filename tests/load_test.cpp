// Whether a core is idle, by what the kernel counts.
#include "node/load.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace pinion::node
