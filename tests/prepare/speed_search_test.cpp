// How many threads a preparation takes, and by which pieces: the searches against made-up machines, in
// virtual time.
#include "prepare/speed_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include "base/clock.h"
#include "prepare/preparation_speed.h"

namespace pinion {
namespace {

/// Throughput grows with each thread, up to a number of them.
double saturating(unsigned threads, unsigned at) { return 1.3 * std::min(threads, at); }

TEST(SpeedSearch, EndsAtTheThreadsThatSaturate) {
  for (unsigned at = 1; at <= 64; ++at) {
    SpeedSearch search(2, 64);
    int measurements = 0;
    while (!search.settled()) {
      search.measured(saturating(search.threads(), at));
      ASSERT_LT(++measurements, 30) << at;
    }
    EXPECT_GE(1.2 * search.threads(), at) << "too few threads";
    EXPECT_LE(search.threads(), at + std::max(1U, at / 4)) << "threads that add nothing";
  }
}

TEST(SpeedSearch, NoiseMovesItLittle) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> part(0.85, 1);  // other work takes some
  double lost = 0;
  constexpr int kRuns = 200;
  for (int run = 0; run < kRuns; ++run) {
    const unsigned at = 4 + run % 13;
    SpeedSearch search(2, 32);
    while (!search.settled()) search.measured(saturating(search.threads(), at) * part(random));
    lost += 1 - saturating(search.threads(), at) / saturating(at, at);
    EXPECT_GE(search.threads(), at / 4);
    EXPECT_LE(search.threads(), 2 * at);
  }
  EXPECT_LT(lost / kRuns, 0.1) << "throughput lost, in the mean";
}

TEST(SpeedSearch, ThreadsThatHinderEachOtherAreTakenBack) {
  SpeedSearch search(2, 64);
  const auto speed = [](unsigned threads) { return threads <= 6 ? threads : 36.0 / threads; };
  unsigned most = 0;
  while (!search.settled()) {
    most = std::max(most, search.threads());
    search.measured(speed(search.threads()));
  }
  EXPECT_LE(most, 16u) << "it goes on where threads make it slower";
  EXPECT_NEAR(search.threads(), 6, 1);
}

TEST(SpeedSearch, NeverLeavesItsBounds) {
  std::mt19937 random(2);
  for (unsigned most = 1; most <= 9; ++most)
    for (unsigned first = 1; first <= most; ++first) {
      SpeedSearch search(first, most);
      EXPECT_EQ(search.threads(), first);
      for (int i = 0; i < 1000; ++i) {
        const unsigned threads = search.measured(static_cast<double>(random() % 100));
        ASSERT_GE(threads, 1u);
        ASSERT_LE(threads, most);
      }
    }
}

TEST(SpeedSearch, LearnsAnewAfterAWhile) {
  SpeedSearch search(2, 32);
  unsigned at = 2;
  for (int i = 0; i < 50; ++i) search.measured(saturating(search.threads(), at));
  EXPECT_EQ(search.threads(), 2u);
  at = 16;
  for (int i = 0; i < 200; ++i) search.measured(saturating(search.threads(), at));
  EXPECT_GE(search.threads(), 15u);
}

TEST(SpeedSearch, ACallersNumberIsTakenBackWhereFewerDo) {
  SpeedSearch search(16, 16);
  EXPECT_EQ(search.threads(), 16u);
  while (!search.settled()) search.measured(saturating(search.threads(), 4));
  EXPECT_LE(search.threads(), 5u);
}

TEST(PieceSearch, GrowsWhileEachByteCostsLess) {
  PieceSearch search(16, 1024);
  for (int i = 0; i < 200; ++i) search.registered(search.bytes(), 0.05 + 0.001 * search.bytes());
  EXPECT_EQ(search.bytes(), 512) << "the next size would save a twentieth of the cost";
}

TEST(PieceSearch, StaysWhereSizeGainsNothing) {
  PieceSearch search(16, 1024);
  for (int i = 0; i < 200; ++i) search.registered(search.bytes(), 0.01 * search.bytes());
  EXPECT_EQ(search.bytes(), 16);
}

TEST(PieceSearch, LeavesRegistrationsShort) {
  PieceSearch search(16, 1024);
  for (int i = 0; i < 200; ++i) search.registered(search.bytes(), 1.5 + 0.02 * search.bytes());
  EXPECT_LE(1.5 + 0.02 * search.bytes(), 4);
}

TEST(PieceSearch, OtherSizesAreLeftOut) {
  PieceSearch search(16, 1024);
  for (int i = 0; i < 200; ++i) search.registered(8, 0.001);
  EXPECT_EQ(search.bytes(), 16);
}

// ---- the two, fed by threads that work in virtual time

TEST(PreparationSpeed, FindsTheThreadsOfAMachine) {
  constexpr unsigned kAt = 6;
  PreparationSpeed speed({2, 64, 16, 16}, 0);
  unsigned threads = speed.threads();
  Time now = 0;
  std::vector<unsigned> seen;
  constexpr std::size_t kSlice = std::size_t{1} << 20;
  for (int slices = 0; slices < 4000; ++slices) {
    now += static_cast<Time>(static_cast<double>(kMillisecond) / saturating(threads, kAt));
    if (const auto wanted = speed.worked(kSlice, now)) {
      threads = *wanted;
      seen.push_back(threads);
    }
  }
  EXPECT_NEAR(threads, kAt, 1);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front(), 4u) << "doubles first";
  EXPECT_LE(*std::max_element(seen.begin(), seen.end()), 16u);
}

}  // namespace
}  // namespace pinion
