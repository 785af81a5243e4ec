// The one bound on the time that a run loses to retention, over patterns, noises and numbers of cores.
#include "retention/time_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "simulate/pattern.h"
#include "simulate/simulation.h"

namespace pinion::simulate {
namespace {

using Case = std::tuple<const char*, const char*, int>;
class TimeBudgetHolds : public ::testing::TestWithParam<Case> {};

TEST_P(TimeBudgetHolds, ToOneRegistration) {
  const auto& [name, noise, cores] = GetParam();
  Pattern pattern;
  ASSERT_FALSE(find_pattern(name, pattern));
  Placement apart;
  ASSERT_FALSE(Placement::make(pattern.ranks, 1, "packed", apart));
  Workload workload = pattern_workload(pattern, 0, apart, {});  // all messages register
  ASSERT_FALSE(Placement::make(pattern.ranks, 4, "packed", workload.placement));
  Settings settings;
  settings.cores = cores;
  ASSERT_FALSE(NoiseModel::parse(noise, settings.noise));
  const Result result = simulate(workload, settings);
  const double most = std::max(0.020, 0.01 * result.seconds);
  // A region goes and comes, of everything at once: a buffer is smaller.
  const std::size_t pages = result.registered.leave_pinned_peak / page_size() / 4;
  const double one_registration =
      1e-9 * (30000 + 308 * static_cast<double>(pages)) * TimeBudget::delay_of(4, cores);
  EXPECT_LE(result.budget.allowed, most);
  EXPECT_LE(result.budget.spent(), result.budget.allowed + one_registration);
  EXPECT_EQ(result.budget.by_helper > 0, cores <= 4);
  EXPECT_NEAR(result.budget.spent(), result.cost.added(), 1e-9) << "everything that is lost counts";
}

INSTANTIATE_TEST_SUITE_P(All, TimeBudgetHolds,
                         ::testing::Combine(::testing::Values("bt:W:4", "cg:A:4", "mg:A:4", "ft:A:4"),
                                            ::testing::Values("none", "1%", "spikes", "irregular"),
                                            ::testing::Values(1, 2, 8)));

}  // namespace
}  // namespace pinion::simulate
