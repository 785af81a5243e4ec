// The budget of registered memory and the limits it stands on.
#include "registry/budget.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(Budget, WhatTheSystemRefusedIsTriedAtIntervals) {
  const std::uint64_t page = page_size();
  const Error why = Error::make(ENOMEM, "no room");
  Budget budget{Limits{100 * page, 100, "--limit"}};
  Time now = kSecond;
  ASSERT_TRUE(budget.reserve(60 * page, now));
  budget.registered();
  ASSERT_TRUE(budget.reserve(30 * page, now));
  budget.release_refused(30 * page, why, now);
  EXPECT_EQ(budget.bytes(), 60 * page);
  EXPECT_EQ(budget.most_bytes(), 89 * page);
  EXPECT_EQ(budget.refusal().code, ENOMEM);
  EXPECT_FALSE(budget.reserve(30 * page, now)) << "that much has been refused";

  // Less is tried at once; and so the true room is found.
  for (std::uint64_t pages = 20; pages > 4; pages /= 2) {
    ASSERT_TRUE(budget.reserve(pages * page, now));
    budget.release_refused(pages * page, why, now);
  }
  EXPECT_EQ(budget.most_bytes(), 64 * page);
  ASSERT_TRUE(budget.reserve(4 * page, now));
  budget.registered();
  EXPECT_EQ(budget.most_bytes(), 64 * page);

  // More is tried once each while, and ever less often.
  int tries = 0;
  for (const Time end = now + 100 * kSecond; now < end; now += kMillisecond) {
    if (!budget.reserve(page, now)) continue;
    budget.release_refused(page, why, now);
    ++tries;
  }
  EXPECT_GE(tries, 50);
  EXPECT_LE(tries, 110);
  EXPECT_EQ(budget.most_bytes(), 64 * page);

  // There is room again.
  now += kSecond;
  ASSERT_TRUE(budget.reserve(30 * page, now));
  budget.registered();
  EXPECT_EQ(budget.most_bytes(), 100 * page);
  EXPECT_FALSE(budget.refusal());
  EXPECT_TRUE(budget.reserve(6 * page, now));
}

/// Gives back the requested bytes, later.
struct Guest final : Occupant {
  explicit Guest(bool gives) : gives_(gives) {}
  bool asked_for(std::uint64_t bytes) override {
    asked = bytes;
    return gives_;
  }
  std::uint64_t asked = 0;

 private:
  const bool gives_;
};

TEST(Budget, AsksOccupantsForWhatIsMissing) {
  Budget budget{Limits{100, 9, "--limit"}};
  EXPECT_FALSE(budget.ask_occupants(50)) << "there are none";
  Guest stays(false), leaves(true);
  budget.add(stays);
  ASSERT_TRUE(budget.reserve(80));
  EXPECT_FALSE(budget.ask_occupants(50));
  EXPECT_EQ(stays.asked, 30U);
  budget.add(leaves);
  EXPECT_TRUE(budget.ask_occupants(25));
  EXPECT_EQ(leaves.asked, 5U);
  budget.remove(leaves);
  EXPECT_FALSE(budget.ask_occupants(25));
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
  const Limits none = find_limits(0, 0, 1);
  EXPECT_LT(none.bytes, UINT64_MAX) << "finite by default";
  EXPECT_EQ(none.regions, UINT64_MAX) << "each device has its own cap";

  const Limits user = find_limits(4096, 7, 1);
  EXPECT_EQ(user.bytes, 4096u);
  EXPECT_EQ(user.bytes_from, "--limit");
  EXPECT_EQ(user.regions, 7u);
  if (::geteuid() == 0) {
    EXPECT_EQ(user.idle_bytes, UINT64_MAX) << "RLIMIT_MEMLOCK does not bind root";
  }

  const Limits node = find_limits(8192, 0, 1, 4096);
  EXPECT_EQ(node.bytes, 4096u);
  EXPECT_NE(node.bytes_from.find("--node-limit"), std::string::npos);
}

TEST(Limits, WhatTheNodeHasIsSharedByItsRanks) {
  const Limits one = find_limits(0, 0, 1);
  const Limits eight = find_limits(0, 0, 8);
  EXPECT_EQ(eight.bytes, one.bytes / 8);
  EXPECT_EQ(find_limits(4096, 0, 8).bytes, 4096u);  // the user's own limit is per process
}

// io_uring counts the pages pinned by all processes of a user, an RDMA device those of each process.
TEST(Limits, LockedMemoryIsSharedWhereItIsCountedByUser) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{8 << 20, 8 << 20};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (::getuid() == 0 && ::setuid(65534) != 0)) ::_exit(2);
    const bool right =
        find_limits(0, 0, 4).bytes == 2 << 20 && find_limits(0, 0, 4, 0, Pinned::by_process).bytes == 8 << 20;
    const bool leaves_an_eighth =
        find_limits(0, 0, 4).idle_bytes == 7 << 18 && find_limits(0, 0, 1).idle_bytes == 7 << 20;
    ::_exit(right && leaves_an_eighth ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pinion
