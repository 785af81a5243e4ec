// A noise of papers/ by its name, which has to be one.
#pragma once

#include <gtest/gtest.h>

#include "papers/patterns/noise.h"

namespace pinion::test {

inline simulate::MakeDisturbance noise(const char* name) {
  simulate::MakeDisturbance found;
  EXPECT_FALSE(simulate::find_noise(name, found));
  return found;
}

}  // namespace pinion::test
