#include <gtest/gtest.h>

#include <string>

#include "papers/patterns/pattern.h"
#include "retention/costs.h"
#include "simulate/simulation.h"

namespace pinion {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(MinimumGain, NoneIsReachedAtOnce) { EXPECT_TRUE(MinimumGain(MinimumGain::Settings{}).reached()); }

TEST(MinimumGain, IsReachedByTheMostThatLeavePinnedHolds) {
  MinimumGain gain({.bytes = 64 * kMiB, .machine = 0});
  gain.see(63 * kMiB, UINT64_MAX, 1);
  EXPECT_FALSE(gain.reached());
  gain.see(64 * kMiB, UINT64_MAX, 1);
  EXPECT_TRUE(gain.reached());
  gain.see(kMiB, UINT64_MAX, 1);
  EXPECT_TRUE(gain.reached()) << "it stays so";
}

TEST(MinimumGain, AShortageReachesItAtAnySize) {
  MinimumGain gain({.bytes = 64 * kMiB, .machine = 0});
  gain.see_shortage();
  EXPECT_TRUE(gain.reached());
}

TEST(MinimumGain, AutoIsAPartOfTheLimitOrOfTheMachine) {
  const MinimumGain gain({.bytes = kAutoSize, .machine = 4096 * kMiB});
  EXPECT_EQ(gain.in_force(UINT64_MAX, 1), 4096 * kMiB / 100);
  EXPECT_EQ(gain.in_force(3000 * kMiB, 1), 30 * kMiB);
  EXPECT_EQ(gain.in_force(100 * kMiB, 1), 16 * kMiB) << "the least";
  EXPECT_EQ(gain.in_force(UINT64_MAX, .5), 4096 * kMiB / 200) << "half of the pages lie in hugepages";
  EXPECT_EQ(gain.in_force(UINT64_MAX, 1. / 512), 16 * kMiB);
  const MinimumGain unknown({.bytes = kAutoSize, .machine = 0});
  EXPECT_EQ(unknown.in_force(UINT64_MAX, 1), 16 * kMiB);
}

// ---- runs of it ----

simulate::Result run(const std::string& name, RetentionKind retention, std::uint64_t minimum_gain,
                     std::uint64_t limit = 0) {
  simulate::Pattern pattern;
  const Error unknown = simulate::find_pattern(name, pattern);
  EXPECT_FALSE(unknown) << unknown.message;
  simulate::Placement placement;
  const Error misplaced = simulate::Placement::make(pattern.ranks, 1, "packed", placement);
  EXPECT_FALSE(misplaced) << misplaced.message;
  const simulate::Workload workload = simulate::pattern_workload(pattern, 0, placement, {});
  simulate::Settings settings;
  settings.retention = retention;
  settings.nic = CostModel{"test", 246, 16000, 62, 4000, {}};
  settings.limit = limit;
  settings.minimum_gain = {.bytes = minimum_gain, .machine = 0};
  return simulate::simulate(workload, settings);
}

constexpr const char* kSmall = "lu:A:4";  // less than the least minimum gain, in each process

TEST(MinimumGain, BelowItARunIsThatOfLeavePinned) {
  const simulate::Result pinned = run(kSmall, RetentionKind::leave_pinned, 0);
  ASSERT_LT(pinned.registered.peak, MinimumGain::kAutoLeast);
  const simulate::Result below = run(kSmall, RetentionKind::helper, kAutoSize);
  EXPECT_EQ(below.kept_all_below_bytes, MinimumGain::kAutoLeast);
  EXPECT_EQ(below.deregistrations, pinned.deregistrations);
  EXPECT_EQ(below.acquires.misses, pinned.acquires.misses);
  EXPECT_EQ(below.registered.mean, pinned.registered.mean);
  EXPECT_EQ(below.seconds, pinned.seconds);
  EXPECT_EQ(below.cost.helper_charged, 0);

  const simulate::Result without = run(kSmall, RetentionKind::helper, 0);
  EXPECT_EQ(without.kept_all_below_bytes, 0u);
  EXPECT_LT(without.registered.mean, pinned.registered.mean) << "the same program where any gain will do";
}

TEST(MinimumGain, UnderALimitThatBindsRegionsGoAtAnySize) {
  const std::uint64_t all = run(kSmall, RetentionKind::leave_pinned, 0).registered.peak;
  const std::uint64_t limit = all / 4 * 3 / 4096 * 4096;  // of a process, which has as much as the node
  const simulate::Result limited = run(kSmall, RetentionKind::helper, kAutoSize, limit);
  const simulate::Result any = run(kSmall, RetentionKind::helper, 0, limit);
  EXPECT_EQ(limited.kept_all_below_bytes, 0u);
  EXPECT_GT(limited.deregistrations, 0u);
  EXPECT_LE(limited.registered.mean, 1.1 * any.registered.mean);
}

TEST(MinimumGain, AboveItLettingGoBegins) {
  const simulate::Result pinned = run("ft:A:4", RetentionKind::leave_pinned, 0);
  ASSERT_GT(pinned.registered.peak, MinimumGain::kAutoLeast);
  const simulate::Result above = run("ft:A:4", RetentionKind::helper, kAutoSize);
  const simulate::Result any = run("ft:A:4", RetentionKind::helper, 0);
  EXPECT_EQ(above.kept_all_below_bytes, 0u);
  EXPECT_LE(above.registered.mean, 1.1 * any.registered.mean);
}

}  // namespace
}  // namespace pinion
