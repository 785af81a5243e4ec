// Which registrations reach the verbs front: those of a linked library, those that are looked up, and not
// those of a library with a libibverbs of its own inside.
#include <gtest/gtest.h>

#include <string>

#include "support/shell.h"

namespace {

using pinion::test::Ended;
using pinion::test::shell;

const std::string kTests = PINION_TEST_DIRECTORY;
const std::string kPreload = PINION_TEST_PRELOAD;

/// Asks for the reach as `pinion run` does.
int reach(const std::string& parts, bool preloaded = true) {
  const std::string environment = preloaded ? "LD_PRELOAD=" + kPreload + " " : "";
  return shell("PINION=front=mpi " + environment + PINION_TEST_COMMAND + " --front-reach " + kPreload + " " +
               parts)
      .status;
}
constexpr int kReached = 10, kElsewhere = 11, kUnknown = 12;

TEST(FrontReach, OfALibraryThatIsLinked) {
  EXPECT_EQ(reach(kTests + "/libverbs_caller.so"), kReached);
  EXPECT_EQ(reach(kTests + "/libverbs_caller.so//libverbs_call*.so"), kReached);
  EXPECT_EQ(reach(kTests + "/libverbs_caller.so", false), kElsewhere);
}

TEST(FrontReach, IsNotProvedByALibraryWithItsOwn) {
  EXPECT_EQ(reach(kTests + "/libverbs_inside.so"), kUnknown);
  EXPECT_EQ(reach("libm.so.6"), kUnknown);
  EXPECT_EQ(reach("/nowhere/lib.so"), kUnknown);
  EXPECT_EQ(reach(""), kUnknown);
}

TEST(FrontReach, OfFunctionsThatAreLookedUp) {
  const std::string program = "LD_LIBRARY_PATH=" + kTests + " " + kTests + "/verbs_lookup_program";
  EXPECT_EQ(shell("LD_PRELOAD= " + program).output, "10 10 10 10 \n");
  const Ended ended = shell(
      "PINION=front=verbs,retention=leave-pinned,remote-keys=shared LD_PRELOAD=" + kPreload + " " + program);
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.output, "1 1 1 1 \n");
}

}  // namespace
