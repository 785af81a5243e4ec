// The budget of registered memory and the limits it stands on.
#include "registry/budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pinion {
namespace {

TEST(Budget, ReservesBothOrNothing) {
  Budget budget{Limits{100, 2, "--limit"}};
  EXPECT_TRUE(budget.reserve(60));
  EXPECT_FALSE(budget.reserve(41));
  EXPECT_EQ(budget.regions(), 1u);
  EXPECT_TRUE(budget.reserve(40));
  EXPECT_FALSE(budget.reserve(0));  // bytes would do, regions do not
  EXPECT_EQ(budget.bytes(), 100u);
  budget.release(60);
  EXPECT_FALSE(budget.reserve(UINT64_MAX));  // and does not wrap around
  EXPECT_TRUE(budget.reserve(60));
}

TEST(Budget, HoldsWithManyThreads) {
  Budget budget{Limits{10, 4, "--limit"}};
  std::vector<std::thread> threads;
  for (std::uint64_t bytes = 1; bytes <= 4; ++bytes) {
    threads.emplace_back([&budget, bytes] {
      for (int i = 0; i < 20'000; ++i) {
        if (!budget.reserve(bytes)) continue;
        EXPECT_LE(budget.bytes(), 10u);
        budget.release(bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(budget.bytes(), 0u);
  EXPECT_EQ(budget.regions(), 0u);
}

TEST(Limits, TheLeastCountsAndSaysWhereItIsFrom) {
  const Limits none = find_limits(0, 0, {}, 1);
  EXPECT_LT(none.bytes, UINT64_MAX) << "finite by default";
  EXPECT_EQ(none.regions, UINT64_MAX);

  DeviceCaps caps;
  caps.max_bytes = 1 << 20;
  caps.max_regions = 100;
  const Limits device = find_limits(0, 0, caps, 1);
  EXPECT_EQ(device.bytes, 1u << 20);
  EXPECT_NE(device.bytes_from.find("device"), std::string::npos);
  EXPECT_EQ(device.regions, 100u);

  const Limits user = find_limits(4096, 7, caps, 1);
  EXPECT_EQ(user.bytes, 4096u);
  EXPECT_EQ(user.bytes_from, "--limit");
  EXPECT_EQ(user.regions, 7u);
  EXPECT_EQ(find_limits(0, 1000, caps, 1).regions, 100u);
}

TEST(Limits, WhatTheNodeHasIsSharedByItsRanks) {
  const Limits one = find_limits(0, 0, {}, 1);
  const Limits eight = find_limits(0, 0, {}, 8);
  EXPECT_EQ(eight.bytes, one.bytes / 8);
  EXPECT_EQ(find_limits(4096, 0, {}, 8).bytes, 4096u);  // the user's own limit is per process
}

}  // namespace
}  // namespace pinion
