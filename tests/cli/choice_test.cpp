// The choice among ways to run a program, on random ways, against its definition.
#include "cli/report/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pinion::cli {
namespace {

std::vector<WayFigures> random_ways(std::mt19937& random) {
  const auto below = [&](unsigned n) { return static_cast<double>(random() % n); };
  std::vector<WayFigures> ways(2 + random() % 12);
  for (WayFigures& way : ways) {
    way.peak = 1 + below(16);
    way.mean = way.peak * (1 + below(8)) / 8;
    way.added = below(12) / 100;
    way.refused = random() % 8 == 0 ? 1 + random() % 3 : 0;
  }
  return ways;
}

TEST(Choice, NeverTakesAWayThatAnotherBeatsOrThatCostsTooMuch) {
  std::mt19937 random(36);
  for (int round = 0; round < 20'000; ++round) {
    const std::vector<WayFigures> ways = random_ways(random);
    const ChoiceTerms terms{.seconds = 10,
                            .least_gain = static_cast<double>(random() % 6),
                            .pinned = random() % ways.size(),
                            .present = random() % ways.size()};
    const WayFigures& pinned = ways[terms.pinned];
    const std::size_t chosen = choose(ways, terms);
    ASSERT_LT(chosen, ways.size());
    if (chosen == terms.pinned) continue;
    const WayFigures& way = ways[chosen];
    for (const WayFigures& other : ways) {
      EXPECT_FALSE(chosen != terms.present && beats(other, way));
      EXPECT_GE(other.refused, way.refused);
    }
    if (pinned.refused > way.refused) continue;
    EXPECT_LE(way.added, pinned.added + kWorthPaying * terms.seconds);
    EXPECT_GE(std::max(pinned.peak - way.peak, pinned.mean - way.mean), terms.least_gain);
  }
}

TEST(Choice, LittleMemoryIsWorthAChangeOnlyWhereMemoryIsShort) {
  const std::vector<WayFigures> ways = {{.peak = 100, .mean = 100}, {.peak = 50, .mean = 20, .added = 0.01}};
  ChoiceTerms terms{.seconds = 10, .least_gain = 200};
  EXPECT_EQ(choose(ways, terms), 0u);
  terms.memory_short = true;
  EXPECT_EQ(choose(ways, terms), 1u);
}

TEST(Choice, ThePresentWayStaysWhereAnotherIsHardlyBetter) {
  const std::vector<WayFigures> ways = {
      {.peak = 100, .mean = 100}, {.peak = 50, .mean = 20}, {.peak = 50, .mean = 21}};
  EXPECT_EQ(choose(ways, {.seconds = 10, .present = 0}), 1u);
  EXPECT_EQ(
      choose({ways[0], ways[1], {.peak = 50, .mean = 19, .added = 0.001}}, {.seconds = 10, .present = 1}),
      1u);
  EXPECT_EQ(choose(ways, {.seconds = 10, .present = 2}), 2u) << "beaten by little";
  EXPECT_EQ(choose({ways[0], ways[1], {.peak = 50, .mean = 30}}, {.seconds = 10, .present = 2}), 1u);
}

TEST(Choice, TransfersThatFindRoomComeBeforeMemoryAndTime) {
  const std::vector<WayFigures> ways = {{.refused = 10}, {.peak = 80, .mean = 60, .added = 2}};
  EXPECT_EQ(choose(ways, {.seconds = 10}), 1u);
  EXPECT_FALSE(beats(ways[0], ways[1]));
}

}  // namespace
}  // namespace pinion::cli
