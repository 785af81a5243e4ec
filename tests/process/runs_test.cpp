// Runs that follow each other in a process: what they leave behind, since threads may still be inside.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <string>

#include "pinion/pinion.h"
#include "process/engine.h"
#include "support/test_name.h"

namespace pinion {
namespace {

/// Bytes that each further run leaves in use.
std::size_t left_by_a_run(const std::string& options) {
  constexpr std::size_t kRuns = 20;
  const auto run = [&] {
    EXPECT_EQ(pinion_start(options.c_str()), 0) << pinion_last_error();
    EXPECT_EQ(pinion_stop(), 0) << pinion_last_error();
  };
  for (std::size_t i = 0; i < 5; ++i) run();
  const std::size_t before = ::mallinfo2().uordblks;
  for (std::size_t i = 0; i < kRuns; ++i) run();
  const std::size_t after = ::mallinfo2().uordblks;
  return after > before ? (after - before) / kRuns : 0;
}

class Runs : public ::testing::TestWithParam<const char*> {};

TEST_P(Runs, LeaveLittleBehind) {
  ::unsetenv("PINION");
  const std::size_t left = left_by_a_run(std::string("retention=") + GetParam());
  RecordProperty("bytes", std::to_string(left));
  // Threads may be inside the engine; all that it had is freed.
  EXPECT_LT(left, sizeof(Engine) + 256);
}

INSTANTIATE_TEST_SUITE_P(Retentions, Runs, ::testing::Values("helper", "on-demand", "lru", "leave-pinned"),
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace pinion
