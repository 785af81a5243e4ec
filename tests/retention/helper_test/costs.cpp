// Cost estimates.

#include <gtest/gtest.h>

#include <random>

#include "fixture.h"

namespace pinion::helper_test {
namespace {

// ---- cost estimates ----

TEST(LinearFit, PriorIsItsLine) {
  const LinearFit fit(246, 16000);
  EXPECT_EQ(fit.expected(1), 16246);
  EXPECT_EQ(fit.expected(1024), 246 * 1024 + 16000);
  EXPECT_EQ(fit.upper(1024), fit.expected(1024));
}

TEST(LinearFit, RecoversAAndB) {
  LinearFit fit(246, 16000);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t pages = 1 + random() % 20000;
    fit.observe(pages, 57 * static_cast<Duration>(pages) + 1500);
  }
  EXPECT_NEAR(fit.a(), 57, 0.01);
  EXPECT_NEAR(fit.b(), 1500, 20);
}

TEST(LinearFit, FollowsADeviceThatChanges) {
  LinearFit fit(246, 16000);
  for (const double a : {100.0, 1000.0, 50.0}) {
    for (std::size_t i = 0; i < 1000; ++i)
      fit.observe(1 + 97 * i % 4096,
                  static_cast<Duration>(a * static_cast<double>(1 + 97 * i % 4096)) + 2000);
    EXPECT_NEAR(fit.a(), a, 0.01 * a);
  }
}

TEST(LinearFit, OneSizeOnlyGivesItsMean) {
  LinearFit fit(246, 16000);
  for (int i = 0; i < 10000; ++i) fit.observe(16384, 4000000);
  EXPECT_NEAR(static_cast<double>(fit.expected(16384)), 4e6, 10);
  EXPECT_GE(fit.a(), 0);
  EXPECT_GE(fit.b(), 0);
}

TEST(LinearFit, NeverNegative) {
  LinearFit fit(246, 16000);
  // The larger the faster: a line of that slope is rejected.
  for (int i = 0; i < 100; ++i) {
    fit.observe(10, 1000000);
    fit.observe(10000, 1000);
  }
  EXPECT_GE(fit.a(), 0);
  for (const std::size_t pages : {1, 100, 100000}) EXPECT_GE(fit.expected(pages), 0);
  // Lines through the origin: b is only rounding.
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::size_t pages = 1 + random() % 99;
    fit.observe(pages, static_cast<Duration>(pages * (10 + random() % 40)));
    ASSERT_GE(fit.b(), 0);
  }
}

TEST(LinearFit, UpperEstimateCoversTheWorstOfLateAndForgetsSlowly) {
  LinearFit fit(0, 10000);
  for (int i = 0; i < 100; ++i) fit.observe(1, 10000);
  EXPECT_EQ(fit.upper(1), fit.expected(1));
  fit.observe(1, 20000);  // twice the line's value
  EXPECT_NEAR(static_cast<double>(fit.upper(1)), 2.0 * static_cast<double>(fit.expected(1)), 300);
  fit.observe(1, 10000);
  EXPECT_GT(fit.upper(1), fit.expected(1) * 18 / 10);
  for (int i = 0; i < 200; ++i) fit.observe(1, 10000);
  EXPECT_NEAR(static_cast<double>(fit.upper(1)), static_cast<double>(fit.expected(1)), 100);
  fit.observe(1, kSecond);  // a stall counts four times at most
  EXPECT_LE(fit.upper(1), 4 * fit.expected(1));
}

TEST(WakeMargin, ThirdLargestOfTheLast32) {
  WakeMargin margin(60);
  EXPECT_EQ(margin.value(), 60);
  margin.observe(1000000);
  margin.observe(1000000);
  EXPECT_EQ(margin.value(), 60);  // deaf to two stalls
  margin.observe(500);
  EXPECT_EQ(margin.value(), 500);
  for (int i = 0; i < 32; ++i) margin.observe(i);  // 0 ... 31
  EXPECT_EQ(margin.value(), 29);
  for (int i = 0; i < 32; ++i) margin.observe(-5);  // woken before time
  EXPECT_EQ(margin.value(), 0);
}

}  // namespace
}  // namespace pinion::helper_test
