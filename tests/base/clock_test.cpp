// The relation of the cycle counter to the clock.
#include "base/clock.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

// Else each process would spend two milliseconds on it at its start.
TEST(Calibration, BeginsWhenTheLibraryIsLoaded) {
  const Time before = monotonic_now();
  EXPECT_LT(calibration().base_time, before);
}

}  // namespace
}  // namespace pinion
