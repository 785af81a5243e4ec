// The project's assertion, as debug and sanitizer builds have it.
#undef PINION_ASSERTIONS
#define PINION_ASSERTIONS 1
#include "base/assert.h"

#include <gtest/gtest.h>

namespace pinion {
namespace {

TEST(Assertion, ATrueConditionIsSilent) {
  int evaluated = 0;
  PINION_ASSERT(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(AssertionDeathTest, AFalseConditionStopsWithItsPlace) {
  EXPECT_DEATH(PINION_ASSERT(1 + 1 == 3 && "sums are right"),
               "assert_test.cpp:[0-9]+: assertion failed: 1 \\+ 1 == 3 && \"sums are right\"");
}

}  // namespace
}  // namespace pinion
