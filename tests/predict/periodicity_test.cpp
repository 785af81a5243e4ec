// The periodicity baseline: d(m) over a full window, predictions one full reuse ahead.
#include <gtest/gtest.h>

#include "predict/paper_predictors.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond;

class PeriodicityTest : public ::testing::Test {
 protected:
  static constexpr unsigned kWindow = 16;
  PeriodicityPredictor predictor{kWindow};
  Time now = kSecond;

  void use(BufferId buffer, Duration after, std::uint64_t site = 1) {
    now += after;
    Use use;
    use.buffer = buffer;
    use.site = site;
    use.time = use.end = now;
    predictor.observe(use);
  }
};

TEST_F(PeriodicityTest, NeedsAFullWindowAndACompletePattern) {
  // Three points a turn: the last kWindow points equal those three before from the 3 + kWindow-th on.
  for (unsigned i = 0; i < 3 + kWindow; ++i) {
    EXPECT_EQ(predictor.period(0), 0u) << i;
    use(i % 3, 10 * ms);
  }
  EXPECT_EQ(predictor.period(0), 3u);
}

// A short window sees a period sooner, also where there is none yet.
TEST(PeriodicityWindow, AShortOneLearnsSooner) {
  PeriodicityPredictor predictor(2);
  Time now = kSecond;
  const auto use = [&](BufferId buffer) {
    Use use;
    use.buffer = buffer;
    use.site = 1;
    use.time = use.end = now += ms;
    predictor.observe(use);
    return predictor.period(0);
  };
  for (const BufferId buffer : {0, 1, 2, 0}) EXPECT_EQ(use(buffer), 0u);
  EXPECT_EQ(use(1), 3u);
  EXPECT_EQ(use(1), 0u) << "one point alone repeats: less than the window";
  EXPECT_EQ(use(1), 1u);
}

TEST_F(PeriodicityTest, PredictsOneFullReuseAhead) {
  for (int i = 0; i < 100; ++i) {
    use(0, 10 * ms);
    use(1, 5 * ms);
    use(0, 2 * ms);
    use(2, 40 * ms);
  }
  ASSERT_EQ(predictor.period(0), 4u);
  // Buffer 0 twice a turn: 7 ms, and 50 ms after the second use.
  EXPECT_EQ(predictor.next_use(0, now), now - 40 * ms + 50 * ms);
  EXPECT_EQ(predictor.next_use(1, now), now - 42 * ms + 57 * ms);
  EXPECT_EQ(predictor.next_use(2, now), now + 57 * ms);
  use(0, 10 * ms);
  EXPECT_EQ(predictor.next_use(0, now), now + 7 * ms);
  EXPECT_EQ(predictor.next_use(0, now + 7 * ms), kNever) << "that use is past, and a prediction stands alone";
}

TEST_F(PeriodicityTest, IsNotReanchored) {
  for (int i = 0; i < 200; ++i) use(static_cast<BufferId>(i % 2), 10 * ms);
  const Time predicted = predictor.next_use(0, now);
  use(0, 13 * ms);
  EXPECT_NE(predictor.next_use(0, now), predicted);
  const Time again = predictor.next_use(0, now);
  use(1, 3 * ms);
  EXPECT_EQ(predictor.next_use(0, now), again);
}

TEST_F(PeriodicityTest, SaysNothingOfWhatDoesNotRepeat) {
  std::uint64_t random = 1;
  for (int i = 0; i < 2000; ++i) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    use(static_cast<BufferId>(random >> 61), ms);
    EXPECT_EQ(predictor.period(0), 0u);
  }
}

TEST_F(PeriodicityTest, ForgottenBuffersAreOthers) {
  for (int i = 0; i < 200; ++i) use(static_cast<BufferId>(i % 2), 10 * ms);
  ASSERT_EQ(predictor.period(0), 2u);
  predictor.forget(0);
  EXPECT_EQ(predictor.next_use(0, now), kNever);
  use(0, 10 * ms);
  EXPECT_EQ(predictor.period(0), 0u) << "another buffer with the same number";
}

}  // namespace
}  // namespace pinion
