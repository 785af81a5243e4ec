// The scheduler itself: it must reach the interleavings that break broken code.
#include "support/deterministic_scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace pinion::test {
namespace {

/// The possible results of two threads that add 1 without atomicity.
std::set<int> results_of_lost_update(Scheduler::Limits limits, bool& complete) {
  std::set<int> results;
  const auto explored = Scheduler::explore(limits, [&] {
    auto count = std::make_shared<ScheduledAtomics::Atomic<int>>(0);
    const auto add = [count] { count->store(count->load() + 1); };
    return Scenario{{add, add}, [&results, count] { results.insert(count->load()); }};
  });
  complete = explored.complete;
  return results;
}

TEST(Scheduler, OnePreemptionLosesAnUpdate) {
  bool complete = false;
  EXPECT_EQ(results_of_lost_update({.preemptions = 0, .random = 0}, complete), (std::set<int>{2}));
  EXPECT_TRUE(complete);
  EXPECT_EQ(results_of_lost_update({.preemptions = 1, .random = 0}, complete), (std::set<int>{1, 2}));
  EXPECT_TRUE(complete);
}

TEST(Scheduler, RandomWalksLoseAnUpdate) {
  bool complete = false;
  EXPECT_EQ(results_of_lost_update({.exhaustive = 0, .random = 200}, complete), (std::set<int>{1, 2}));
  EXPECT_FALSE(complete);
}

TEST(Scheduler, SpinningLetsTheOthersGoOn) {
  const auto explored = Scheduler::explore({.preemptions = 2, .random = 20}, [] {
    auto flag = std::make_shared<ScheduledAtomics::Atomic<bool>>(false);
    return Scenario{{[flag] {
                       while (!flag->load()) ScheduledAtomics::relax();
                     },
                     [flag] { flag->store(true); }}};
  });
  EXPECT_TRUE(explored.complete);
}

}  // namespace
}  // namespace pinion::test
