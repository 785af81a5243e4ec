// The count of different buckets: exact up to a million, then close.
#include "firehose/distinct_count.h"

#include <gtest/gtest.h>

namespace pinion::firehose {
namespace {

TEST(DistinctCount, IsExactUpToItsSize) {
  DistinctCount count;
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t i = 0; i < 10'000; ++i) count.add(i << 24);
  EXPECT_EQ(count.count(), 10'000u);
}

TEST(DistinctCount, IsCloseBeyond) {
  DistinctCount count;
  constexpr std::uint64_t kValues = 5 * DistinctCount::kMost;
  for (std::uint64_t i = 0; i < kValues; ++i) count.add(i);
  EXPECT_NEAR(static_cast<double>(count.count()), static_cast<double>(kValues), 0.01 * kValues);
}

}  // namespace
}  // namespace pinion::firehose
