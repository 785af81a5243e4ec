// Host memory as the driver sees it: registrations and closed ranges keep apart, by the byte.
#include "device/cuda/host_ranges.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "device/cuda/batch_pieces.h"
#include "device/cuda/block.h"
#include "support/in_child.h"

namespace pinion::cuda {
namespace {

/// The memory of a call that is in the driver, or would be.
class Call {
 public:
  explicit Call(Range range) : block_(range) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool close(HostRanges& ranges) const { return ranges.close({&block_, 1}); }
  void open(HostRanges& ranges) const { ranges.open({&block_, 1}); }

 private:
  const Block block_;
};
/// Closes a range for ever.
bool close(HostRanges& ranges, Range range) {
  static std::list<Call> calls;
  return calls.emplace_back(range).close(ranges);
}
void bar(HostRanges& ranges, Range range) { ranges.bar(std::array{Block(range)}); }

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
  const Call first({100, 200}), second({100, 200}), third({150, 400});
  ASSERT_TRUE(first.close(ranges));
  ASSERT_TRUE(second.close(ranges));
  ASSERT_TRUE(third.close(ranges)) << "calls may share memory";
  EXPECT_FALSE(ranges.begin_registration({199, 250}));
  first.open(ranges);
  EXPECT_FALSE(ranges.begin_registration({50, 101}));
  second.open(ranges);
  EXPECT_TRUE(ranges.begin_registration({50, 101}));
  EXPECT_FALSE(ranges.begin_registration({101, 151}));
  third.open(ranges);
  EXPECT_TRUE(ranges.begin_registration({101, 151}));
}

TEST(HostRanges, AllOfACallsRangesAreClosedOrNone) {
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({1000, 2000}));
  std::array blocks{Block({100'000, 100'001}), Block(Range{100, 200}), Block(Range{1999, 2001})};
  const std::span<const Block> call = order(blocks);
  EXPECT_FALSE(ranges.close(call));
  EXPECT_TRUE(ranges.begin_registration({100, 200}));
  ranges.end_registration({1000, 2000});
  ranges.end_registration({100, 200});
  EXPECT_TRUE(ranges.close(call));
  EXPECT_FALSE(ranges.begin_registration({2000, 3000}));
}

TEST(HostRanges, MemoryOfOurOwnStandsInNoCallsWay) {
  HostRanges ranges;
  ranges.add_own({1000, 2000});
  EXPECT_TRUE(close(ranges, {500, 3000}));
  EXPECT_EQ(ranges.registration_of(1999), (Range{1000, 2000}));
  EXPECT_FALSE(ranges.touches_registration({0, 3000})) << "none that could go";
  EXPECT_FALSE(ranges.begin_registration({1999, 5000}));
}

TEST(HostRanges, WhatLiesBetweenTheRowsOfACallIsNoneOfIts) {
  HostRanges ranges;
  Block rows(Range{1000, 1100});
  rows.pitch = 1000, rows.rows = 3, rows.reach = rows.hull().end;
  ASSERT_TRUE(ranges.begin_registration({1100, 2000}));
  EXPECT_TRUE(ranges.close({&rows, 1}));
  EXPECT_TRUE(ranges.begin_registration({2100, 3000}));
  EXPECT_FALSE(ranges.begin_registration({3099, 3100}));
  ranges.open({&rows, 1});
  ASSERT_TRUE(ranges.begin_registration({3000, 3200}));
  EXPECT_FALSE(ranges.close({&rows, 1}));
  EXPECT_EQ(ranges.registrations_in({&rows, 1}), (std::vector<Range>{{3000, 3200}}));
}

TEST(HostRanges, TheRegistrationsInABatchAreFoundHoweverManyItsPieces) {
  constexpr std::size_t kPieces = 10'000;
  constexpr Address kApart = 4 * kLeastRegistered;
  BatchPieces pieces;
  for (std::size_t i = kPieces; i-- > 0;) pieces.add(Range{(i + 1) * kApart, (i + 1) * kApart + 100});
  const std::span<const Block> batch = order(pieces.blocks());
  ASSERT_EQ(batch.size(), kPieces);
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({kApart + 100, 2 * kApart}));
  EXPECT_TRUE(ranges.close(batch));
  EXPECT_FALSE(ranges.begin_registration({77 * kApart + 99, 78 * kApart}));
  ranges.open(batch);
  const std::vector<Range> within{{77 * kApart + 99, 78 * kApart}, {500 * kApart - 1, 501 * kApart + 1}};
  for (const Range range : within) ASSERT_TRUE(ranges.begin_registration(range));
  EXPECT_FALSE(ranges.close(batch));
  EXPECT_EQ(ranges.registrations_in(batch), within);
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
  const Call call({1000, 2000});
  ASSERT_TRUE(call.close(ranges));
  bar(ranges, {1000, 2000});
  call.open(ranges);
  EXPECT_FALSE(ranges.begin_registration({1999, 3000}));
  bar(ranges, {1500, 4000});  // by another node
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
  bar(ranges, {1000, 2000});
  EXPECT_TRUE(ranges.is_barred({1000, 2000}));
  EXPECT_EQ(ranges.changing({.range = {0, 4096}, .kind = ChangeKind::unmap}), Answer::proceed);
  EXPECT_FALSE(ranges.is_barred({1000, 2000}));
}

TEST(HostRanges, WhatTheProgramPinnedIsClosedUntilItIsTaken) {
  HostRanges ranges;
  ranges.add_pinned({1000, 2000});
  bar(ranges, {1500, 1600});  // by a node
  EXPECT_TRUE(ranges.is_barred({1000, 2000}));
  EXPECT_EQ(ranges.changing({.range = {0, 4096}, .kind = ChangeKind::unmap}), Answer::proceed);
  EXPECT_FALSE(ranges.begin_registration({1999, 3000})) << "the driver has it still";
  bar(ranges, {1500, 1600});
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
  bar(ranges, {1000, 2000});
  change({0, 4096}, ChangeKind::zeros);
  change({0, 4096}, ChangeKind::rights);
  EXPECT_FALSE(ranges.begin_registration({1000, 2000})) << "it is mapped still";
  change({0, 4096}, ChangeKind::unmap);
  bar(ranges, {3000, 3500});  // of the memory that was mapped since
  EXPECT_FALSE(ranges.begin_registration({3400, 4000}));
  EXPECT_TRUE(ranges.begin_registration({1000, 2000}));
  change({0, 4096}, ChangeKind::other);
  EXPECT_TRUE(ranges.begin_registration({3400, 4000}));
}

TEST(HostRanges, AChildHasNone) {
  HostRanges ranges;
  ASSERT_TRUE(ranges.begin_registration({100, 200}));
  const Call call({300, 400});
  ASSERT_TRUE(call.close(ranges));
  bar(ranges, {500, 600});
  ranges.add_pinned({700, 800});
  test::in_child([&] {
    ranges.abandon_after_fork();
    call.open(ranges);  // by the call that forked
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
      const Call call(range);
      if (!(registers ? ranges.begin_registration(range) : call.close(ranges))) continue;
      const int own = registers ? kRegistration : 1;
      for (Address at = range.begin; at < range.end; ++at) {
        const int before = inside[at].fetch_add(own);
        if (before >= kRegistration || (registers && before != 0)) met = true;
      }
      for (Address at = range.begin; at < range.end; ++at) inside[at].fetch_sub(own);
      registers ? ranges.end_registration(range) : call.open(ranges);
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
