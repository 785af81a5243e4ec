// The margin before a predicted use, worked out by hand.
#include <gtest/gtest.h>

#include <vector>

#include "predict/adaptive.h"

namespace pinion {
namespace {

TEST(Margin, IsZeroWithoutErrors) {
  const Margin margin = best_margin({}, 1000, 0);
  EXPECT_TRUE(margin.ready());
  EXPECT_EQ(margin.by, 0);
  EXPECT_EQ(margin.worth, 1000);
}

TEST(Margin, CoversTheEarliestUseWhereLateUsesAreDear) {
  // One use in ten comes 50 ns early; to be ready for it costs 50 ns of each, to be late for it far more.
  std::vector<float> errors(10, 0.0f);
  errors[0] = -50;
  EXPECT_EQ(best_margin(errors, 10'000, errors.size()).by, 50);
}

TEST(Margin, LeavesARareEarlyUseLateWhereHoldingIsDear) {
  std::vector<float> errors(10, 0.0f);
  errors[0] = -50;
  const Margin margin = best_margin(errors, 100, errors.size());
  EXPECT_EQ(margin.by, 0);
  EXPECT_GT(margin.risk, 1.0 / 10.5);
}

TEST(Margin, GivesReadinessUpWhereErrorsAreFarBeyondIt) {
  const std::vector<float> errors = {-100'000, -50'000, 0, 50'000, 100'000};
  EXPECT_FALSE(best_margin(errors, 10, errors.size()).ready());
}

}  // namespace
}  // namespace pinion
