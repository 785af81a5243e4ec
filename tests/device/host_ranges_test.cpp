// Host memory as the driver sees it: registrations and closed ranges keep apart, by the byte.
#include "device/cuda/host_ranges.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <random>
#include <thread>
#include <vector>

#include "support/in_child.h"

namespace pinion::cuda {
namespace {

bool close(HostRanges& ranges, Range range) { return ranges.close(std::array{range}); }
void open(HostRanges& ranges, Range range) { ranges.open(std::array{range}); }

TEST(HostRanges, RegistrationsShareAPageButNoByte) {
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({100, 8100}));
  EXPECT_TRUE(ranges.begin_registration({8100, 12000}));
  EXPECT_FALSE(ranges.begin_registration({8099, 8101})) << "both";
  EXPECT_FALSE(ranges.begin_registration({100, 8100})) << "the same";
  EXPECT_FALSE(ranges.begin_registration({200, 300})) << "within";
  EXPECT_FALSE(ranges.begin_registration({0, 20000})) << "around";
  EXPECT_FALSE(ranges.begin_registration({500, 500})) << "empty";
  ranges.end_registration({100, 8100});
  EXPECT_FALSE(ranges.begin_registration({0, 8101}));
  EXPECT_TRUE(ranges.begin_registration({0, 8100}));
}

TEST(HostRanges, TheRegistrationOfAnAddressIsFoundByEachOfItsBytes) {
  HostRanges ranges;
  EXPECT_FALSE(ranges.registration_of(100));
  ASSERT_TRUE(ranges.begin_registration({100, 200}));
  ASSERT_TRUE(ranges.begin_registration({200, 300}));
  EXPECT_FALSE(ranges.registration_of(99));
  EXPECT_EQ(ranges.registration_of(100), (Range{100, 200}));
  EXPECT_EQ(ranges.registration_of(199), (Range{100, 200}));
  EXPECT_EQ(ranges.registration_of(200), (Range{200, 300}));
  EXPECT_FALSE(ranges.registration_of(300));
  EXPECT_TRUE(ranges.touches_registration({50, 101}));
  EXPECT_FALSE(ranges.touches_registration({50, 100}));
  EXPECT_FALSE(ranges.touches_registration({150, 150}));
}

TEST(HostRanges, AClosedRangeRefusesRegistrationsUntilEachCloseIsOpened) {
  HostRanges ranges;
  ASSERT_TRUE(close(ranges, {100, 200}));
  ASSERT_TRUE(close(ranges, {100, 200}));
  ASSERT_TRUE(close(ranges, {150, 400})) << "calls may share memory";
  EXPECT_FALSE(ranges.begin_registration({199, 250}));
  open(ranges, {100, 200});
  EXPECT_FALSE(ranges.begin_registration({50, 101}));
  open(ranges, {100, 200});
  EXPECT_TRUE(ranges.begin_registration({50, 101}));
  EXPECT_FALSE(ranges.begin_registration({101, 151}));
  open(ranges, {150, 400});
  EXPECT_TRUE(ranges.begin_registration({101, 151}));
}

TEST(HostRanges, AllOfACallsRangesAreClosedOrNone) {
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({1000, 2000}));
  EXPECT_FALSE(ranges.close(std::array{Range{100, 200}, Range{1999, 2001}}));
  EXPECT_TRUE(ranges.begin_registration({100, 200}));
  ranges.end_registration({1000, 2000});
  ranges.end_registration({100, 200});
  EXPECT_TRUE(ranges.close(std::array{Range{100, 200}, Range{1999, 2001}}));
  EXPECT_FALSE(ranges.begin_registration({2000, 3000}));
}

TEST(HostRanges, AnEmptyRangeIsClosedBesideAnyRegistration) {
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({1000, 2000}));
  EXPECT_TRUE(close(ranges, {1500, 1500}));
  ranges.end_registration({1000, 2000});
  EXPECT_TRUE(ranges.begin_registration({1000, 2000}));
}

TEST(HostRanges, ABarOutlastsItsCallUntilItsMemoryIsGone) {
  HostRanges ranges;
  ASSERT_TRUE(close(ranges, {1000, 2000}));
  ranges.bar({1000, 2000});
  open(ranges, {1000, 2000});
  EXPECT_FALSE(ranges.begin_registration({1999, 3000}));
  ranges.bar({1500, 4000});  // by another node
  EXPECT_TRUE(ranges.is_barred({1000, 4000}));
  EXPECT_EQ(ranges.changing({.range = {1200, 1300}, .kind = ChangeKind::unmap}), Answer::proceed);
  EXPECT_FALSE(ranges.is_barred({1100, 1400}));
  EXPECT_TRUE(ranges.begin_registration({1200, 1300}));
  EXPECT_FALSE(ranges.begin_registration({1199, 1200}));
  EXPECT_FALSE(ranges.begin_registration({1300, 1301}));
  EXPECT_EQ(ranges.changing({.range = {0, 4096}, .kind = ChangeKind::unmap}), Answer::proceed);
  EXPECT_TRUE(ranges.begin_registration({1300, 4000}));
}

TEST(HostRanges, FreshMemoryIsNotBarredAtTheFirstLook) {
  HostRanges ranges;
  ranges.bar({1000, 2000});
  EXPECT_TRUE(ranges.is_barred({1000, 2000}));
  EXPECT_EQ(ranges.changing({.range = {0, 4096}, .kind = ChangeKind::unmap}), Answer::proceed);
  EXPECT_FALSE(ranges.is_barred({1000, 2000}));
}

TEST(HostRanges, WhatTheProgramPinnedIsClosedUntilItIsTaken) {
  HostRanges ranges;
  ranges.add_pinned({1000, 2000});
  ranges.bar({1500, 1600});  // by a node
  EXPECT_TRUE(ranges.is_barred({1000, 2000}));
  EXPECT_EQ(ranges.changing({.range = {0, 4096}, .kind = ChangeKind::unmap}), Answer::proceed);
  EXPECT_FALSE(ranges.begin_registration({1999, 3000})) << "the driver has it still";
  ranges.bar({1500, 1600});
  EXPECT_FALSE(ranges.take_pinned(1500));
  EXPECT_EQ(ranges.take_pinned(1000), (Range{1000, 2000}));
  EXPECT_FALSE(ranges.take_pinned(1000));
  EXPECT_FALSE(ranges.begin_registration({1000, 2000})) << "the node stays";
  EXPECT_TRUE(ranges.begin_registration({1600, 2000}));
}

TEST(HostRanges, PinningAnewEndsWhatWasThere) {
  HostRanges ranges;
  ranges.add_pinned({1000, 2000});
  ranges.add_pinned({500, 1500});
  ASSERT_EQ(ranges.pinned().size(), 2u);
  EXPECT_EQ(ranges.take_pinned(500), (Range{500, 1500}));
  EXPECT_TRUE(ranges.begin_registration({500, 1500}));
}

TEST(HostRanges, ABarEndsAsItsMemoryIsUnmapped) {
  HostRanges ranges;
  const auto change = [&](Range range, ChangeKind kind) {
    EXPECT_EQ(ranges.changing({.range = range, .kind = kind}), Answer::proceed);
  };
  ranges.bar({1000, 2000});
  change({0, 4096}, ChangeKind::zeros);
  change({0, 4096}, ChangeKind::rights);
  EXPECT_FALSE(ranges.begin_registration({1000, 2000})) << "it is mapped still";
  change({0, 4096}, ChangeKind::unmap);
  ranges.bar({3000, 3500});  // of the memory that was mapped since
  EXPECT_FALSE(ranges.begin_registration({3400, 4000}));
  EXPECT_TRUE(ranges.begin_registration({1000, 2000}));
  change({0, 4096}, ChangeKind::other);
  EXPECT_TRUE(ranges.begin_registration({3400, 4000}));
}

TEST(HostRanges, AChildHasNone) {
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({100, 200}));
  ASSERT_TRUE(close(ranges, {300, 400}));
  ranges.bar({500, 600});
  ranges.add_pinned({700, 800});
  test::in_child([&] {
    ranges.abandon_after_fork();
    open(ranges, {300, 400});  // by the call that forked
    EXPECT_TRUE(ranges.begin_registration({0, 1000}));
  });
  EXPECT_FALSE(ranges.begin_registration({500, 501}));
}

TEST(HostRanges, AChildHasNoneOfItsParents) {
  HostRanges& ranges = host_ranges();
  ASSERT_TRUE(ranges.begin_registration({100, 200}));
  test::in_child([&] { EXPECT_TRUE(ranges.begin_registration({150, 250})); });
  ranges.end_registration({100, 200});
}

/// Each byte counts who is inside: a registration keeps closed ranges and other registrations out.
TEST(HostRanges, ThreadsNeverMeetOnAByte) {
  constexpr std::size_t kBytes = 64;
  constexpr int kRegistration = 1000;
  HostRanges ranges;
  std::array<std::atomic<int>, kBytes> inside{};
  std::atomic<bool> met{false};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 20'000; ++round) {
      const Address begin = random() % kBytes;
      const Range range{begin, begin + 1 + random() % (kBytes - begin)};
      const bool registers = random() % 2 == 0;
      if (!(registers ? ranges.begin_registration(range) : close(ranges, range))) continue;
      const int own = registers ? kRegistration : 1;
      for (Address at = range.begin; at < range.end; ++at) {
        const int before = inside[at].fetch_add(own);
        if (before >= kRegistration || (registers && before != 0)) met = true;
      }
      for (Address at = range.begin; at < range.end; ++at) inside[at].fetch_sub(own);
      registers ? ranges.end_registration(range) : open(ranges, range);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(met);
  EXPECT_TRUE(ranges.begin_registration({0, kBytes})) << "nothing is left closed";
}

}  // namespace
}  // namespace pinion::cuda
