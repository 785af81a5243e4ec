// Hugepages in virtual time: what the helper has collapsed registers by the hugepage, and a run on full cores
// gains by it within its bound.
#include <gtest/gtest.h>

#include <string>

#include "papers/patterns/pattern.h"
#include "simulate/simulation.h"
#include "simulate/transparent_hugepages.h"

namespace pinion::simulate {
namespace {

constexpr std::size_t kUnit = std::size_t{2} << 20;
constexpr std::size_t kPages = kUnit / 4096;  // of a unit

class Collapsed : public testing::Test {
 protected:
  void SetUp() override {
    if (page_size() != 4096) GTEST_SKIP() << "worked out for pages of 4 KiB";
  }
  static Range units(std::size_t first, std::size_t count) {
    return {first * kUnit, (first + count) * kUnit};
  }

  VirtualClock clock;
  TransparentHugepages hugepages{{.unit = kUnit, .a_unit = kMillisecond}, clock};
};

TEST_F(Collapsed, MemoryHasAnEntryForEachHugepageThatLiesInIt) {
  EXPECT_EQ(hugepages.entries(units(1, 4)), 4 * kPages);
  EXPECT_EQ(hugepages.begin_collapse(units(2, 2)), 2 * kMillisecond);
  EXPECT_EQ(hugepages.entries(units(1, 4)), 4 * kPages) << "not before it is over";
  clock.advance(2 * kMillisecond);
  EXPECT_EQ(hugepages.end_collapse(), 2 * kUnit);
  EXPECT_EQ(hugepages.entries(units(1, 4)), 2 * kPages + 2);
  const Range ends{2 * kUnit + 4096, 4 * kUnit};
  EXPECT_EQ(hugepages.entries(ends), kPages - 1 + 1) << "a part of a hugepage counts its pages";
}

TEST_F(Collapsed, UnitsStayAsTheyAreThatARegistrationMeets) {
  hugepages.begin_collapse(units(0, 4));
  clock.advance(2 * kMillisecond + kMillisecond / 2);
  hugepages.pinned(units(8, 1));
  hugepages.pinned(units(3, 1));
  clock.advance(2 * kMillisecond);
  EXPECT_EQ(hugepages.end_collapse(), 2 * kUnit);
  EXPECT_EQ(hugepages.entries(units(0, 4)), 2 + 2 * kPages);
}

TEST_F(Collapsed, MemoryThatChangesLosesThem) {
  hugepages.begin_collapse(units(4, 4));
  clock.advance(kSecond);
  hugepages.end_collapse();
  hugepages.gone({5 * kUnit + 4096, 6 * kUnit + 4096});
  EXPECT_EQ(hugepages.entries(units(4, 4)), 2 + 2 * kPages);
}

TEST_F(Collapsed, AHeapOfHugepagesIsBornOfThem) {
  const TransparentHugepages born({.unit = kUnit, .born = true}, clock);
  EXPECT_EQ(born.entries(units(3, 4)), 4u);
  EXPECT_FALSE(born.may_collapse());
}

/// Two ranks that compute on two cores, and send their buffers in turn.
Result on_full_cores(const std::string& name, std::uint64_t turns, Hugepages hugepages) {
  Pattern pattern;
  EXPECT_FALSE(find_pattern(name, pattern));
  Placement apart;
  EXPECT_FALSE(Placement::make(pattern.ranks, 1, "packed", apart));
  Workload workload = pattern_workload(pattern, turns, apart, {});
  EXPECT_FALSE(Placement::make(pattern.ranks, pattern.ranks, "packed", workload.placement));
  Settings settings;
  settings.nic = CostModel{"connectx", 246, 16000, 66, 4320, {}};
  settings.cores = pattern.ranks;
  settings.hugepages = hugepages;
  return simulate(workload, settings);
}

class OnFullCores : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Patterns, OnFullCores, testing::Values("ft:A:2", "is:B:2", "loop3:64M:2"),
                         [](const auto& name) {
                           return std::string(name.param).substr(0, std::string(name.param).find(':'));
                         });

TEST_P(OnFullCores, TheHelperBuysHugepagesAndFreesMoreWithinTheBound) {
  const Result off = on_full_cores(GetParam(), 200, Hugepages::off);
  const Result bought = on_full_cores(GetParam(), 200, Hugepages::automatic);
  const Result born = on_full_cores(GetParam(), 200, Hugepages::heap);
  EXPECT_LT(bought.registered.mean, .8 * off.registered.mean);
  EXPECT_LT(born.registered.mean, bought.registered.mean);
  EXPECT_LE(bought.cost.added(), .01 * bought.seconds);
}

}  // namespace
}  // namespace pinion::simulate
