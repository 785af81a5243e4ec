#include "runlog/series.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace pinion::runlog {
namespace {

double sum_of_bins(const Series& s) {
  return std::accumulate(s.bins(), s.bins() + kSeriesBins, 0.0,
                         [](double sum, const SeriesBin& bin) { return sum + bin.byte_ns; });
}

TEST(Series, KeepsPeakAndIntegralExactly) {
  Series s;
  s.start(1000);
  s.step(1010, 100);  // 0 for 10 ns
  s.step(1030, 300);  // 100 for 20 ns
  s.step(1030, 50);   // the peak lasted no time
  s.advance(1040);    // 50 for 10 ns
  EXPECT_EQ(s.peak(), 300u);
  EXPECT_DOUBLE_EQ(s.byte_ns(), 100 * 20 + 50 * 10);
  EXPECT_EQ(s.last(), 1040);
  EXPECT_EQ(s.bins()[0].peak_bytes, 300u);
}

TEST(Series, SpreadsALevelOverTheBinsItLasts) {
  Series s;
  s.start(0);
  const Duration w = Series::kFirstBinWidth;
  s.step(w / 2, 8);
  s.step(w * 5 / 2, 0);
  EXPECT_DOUBLE_EQ(s.bins()[0].byte_ns, 8.0 * static_cast<double>(w / 2));
  EXPECT_DOUBLE_EQ(s.bins()[1].byte_ns, 8.0 * static_cast<double>(w));
  EXPECT_DOUBLE_EQ(s.bins()[2].byte_ns, 8.0 * static_cast<double>(w / 2));
  EXPECT_EQ(s.bins()[1].peak_bytes, 8u);
  EXPECT_EQ(s.bins()[3].peak_bytes, 0u);
}

TEST(Series, FoldsWhenOutgrown) {
  Series s;
  s.start(0);
  const Duration w = Series::kFirstBinWidth;
  for (int i = 0; i < 1024; ++i) s.step(i * w, static_cast<std::uint64_t>(i));
  EXPECT_EQ(s.bin_width(), w);
  s.step(1024 * w, 7);
  EXPECT_EQ(s.bin_width(), 2 * w);
  EXPECT_EQ(s.bins()[10].peak_bytes, 21u);
  EXPECT_DOUBLE_EQ(s.bins()[10].byte_ns, (20.0 + 21.0) * static_cast<double>(w));
  EXPECT_EQ(s.peak(), 1023u);
  EXPECT_DOUBLE_EQ(sum_of_bins(s), s.byte_ns());
}

TEST(Series, SurvivesYearsInOneStep) {
  Series s;
  s.start(0);
  s.step(0, 10);
  const Time year = Time{365} * 86400 * kSecond;
  s.advance(year);
  EXPECT_DOUBLE_EQ(s.byte_ns(), 10.0 * static_cast<double>(year));
  EXPECT_GE(s.bin_width() * kSeriesBins, year);
}

TEST(Series, ClocksThatRunBackwardsDoNoHarm) {
  Series s;
  s.start(100);
  s.step(200, 5);
  s.step(150, 9);  // counts as 200
  s.advance(210);
  EXPECT_DOUBLE_EQ(s.byte_ns(), 90);
  EXPECT_EQ(s.peak(), 9u);
}

TEST(Series, StartForgetsAllButTheLevel) {
  Series s;
  s.start(0);
  s.step(10, 1000);
  s.step(20, 30);
  s.start(50);
  EXPECT_EQ(s.peak(), 30u);
  EXPECT_DOUBLE_EQ(s.byte_ns(), 0);
  s.advance(60);
  EXPECT_DOUBLE_EQ(s.byte_ns(), 300);
}

TEST(Series, BinsAgreeWithTheIntegralForRandomSteps) {
  std::mt19937_64 random(7);
  Series s;
  s.start(12345);
  Time now = 12345;
  double integral = 0;
  std::uint64_t level = 0, peak = 0;
  for (int i = 0; i < 20000; ++i) {
    const Duration step = static_cast<Duration>(random() % kMillisecond);
    integral += static_cast<double>(level) * static_cast<double>(step);
    now += step;
    level = random() % (1 << 20);
    peak = std::max(peak, level);
    s.step(now, level);
  }
  EXPECT_NEAR(s.byte_ns(), integral, integral * 1e-9);
  EXPECT_NEAR(sum_of_bins(s), integral, integral * 1e-9);
  EXPECT_EQ(s.peak(), peak);
}

}  // namespace
}  // namespace pinion::runlog
