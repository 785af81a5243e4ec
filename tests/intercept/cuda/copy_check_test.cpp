// The verdicts on copies whose bytes are compared. The driver is the test's: its device is an array.
#include "intercept/cuda/copy_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "lease/copy_counters.h"

namespace pinion::cuda {
namespace {

constexpr DevicePointer kDevice = 0x7f00'0000'0000;
std::vector<char>* g_device = nullptr;
std::function<Result()> g_at_fetch;
int g_fetches = 0;

Result fetch(void* to, DevicePointer from, std::size_t bytes, Stream) {
  ++g_fetches;
  if (g_at_fetch)
    if (const Result result = g_at_fetch()) return result;
  std::memcpy(to, g_device->data() + (from - kDevice), bytes);
  return kSuccess;
}

class CopyVerdicts : public testing::Test {
 protected:
  CopyVerdicts() {
    driver_.copy_out_async = fetch;
    g_device = &device_;
    g_at_fetch = nullptr;
    g_fetches = 0;
    check_copies(1);
    copy_counters().add_to(before_);
    std::fill(host_.begin(), host_.end(), 1);
    std::fill(device_.begin(), device_.end(), 2);
  }
  ~CopyVerdicts() override { check_copies(0); }

  /// Checks a copy whose bytes `copy` moves; returns what is said.
  std::string check(Direction direction, const std::function<void()>& copy) {
    const LinearCopy call{direction, true, kLegacyStream, kDevice, host_.data(), host_.size()};
    testing::internal::CaptureStderr();
    CopyCheck check(driver_, call);
    copy();
    check.finish(runlog::CopyWay::registered);
    return testing::internal::GetCapturedStderr();
  }
  void copy_in() { std::copy(host_.begin(), host_.end(), device_.begin()); }
  void copy_out() { std::copy(device_.begin(), device_.end(), host_.begin()); }
  void expect(unsigned verified, unsigned differing) const {
    runlog::Counters after{};
    copy_counters().add_to(after);
    EXPECT_EQ(after.copies_verified - before_.copies_verified, verified);
    EXPECT_EQ(after.copies_differing - before_.copies_differing, differing);
  }

  static constexpr std::size_t kBytes = (std::size_t{40} << 20) + 13;  // several pieces
  std::vector<char> host_ = std::vector<char>(kBytes), device_ = std::vector<char>(kBytes);
  Driver driver_;
  runlog::Counters before_{};
};

TEST_F(CopyVerdicts, CopiesThatMovedAllBytesAreEqual) {
  EXPECT_EQ(check(Direction::to_device, [&] { copy_in(); }), "");
  expect(1, 0);
  device_[kBytes - 1] = 7;
  EXPECT_EQ(check(Direction::from_device, [&] { copy_out(); }), "");
  expect(2, 0);
}

TEST_F(CopyVerdicts, AByteThatStayedOldIsADifference) {
  for (const Direction direction : {Direction::to_device, Direction::from_device}) {
    const std::string said = check(direction, [&] {
      std::fill(device_.begin(), device_.end(), 5);
      std::fill(host_.begin(), host_.end(), 5);
      (direction == Direction::to_device ? device_ : host_)[kBytes - 1] = 4;
    });
    // The host's memory changed during a copy to the device: no verdict.
    EXPECT_EQ(said.empty(), direction == Direction::to_device);
  }
  expect(1, 1);
  const std::string said = check(Direction::to_device, [&] {
    copy_in();
    device_[20'000'000] = 9;
  });
  EXPECT_NE(said.find("the first at byte 20000000"), std::string::npos) << said;
  expect(2, 2);
}

TEST_F(CopyVerdicts, MemoryThatAnotherThreadWritesHasNoVerdict) {
  g_at_fetch = [&] { return ++host_[5], kSuccess; };
  EXPECT_EQ(check(Direction::to_device, [&] { copy_in(); }), "");
  EXPECT_EQ(check(Direction::from_device, [&] { copy_out(); }), "");
  g_at_fetch = [&] { return ++device_[5], kSuccess; };
  EXPECT_EQ(check(Direction::to_device, [&] { copy_in(); }), "");
  EXPECT_EQ(check(Direction::from_device, [&] { copy_out(); }), "");
  expect(0, 0);
}

TEST_F(CopyVerdicts, ADriverThatFailsGivesNone) {
  g_at_fetch = [] { return kLaunchFailed; };
  EXPECT_EQ(check(Direction::to_device, [] {}), "");
  expect(0, 0);
}

TEST_F(CopyVerdicts, TheShareOfThemIsChecked) {
  host_.resize(64), device_ = host_;
  const auto checked_of = [&](double share) {
    check_copies(share);
    g_fetches = 0;
    copy_in();
    const LinearCopy call{Direction::to_device, true, kLegacyStream, kDevice, host_.data(), host_.size()};
    for (int i = 0; i < 10'000; ++i) CopyCheck(driver_, call).finish(runlog::CopyWay::staged);
    return g_fetches;
  };
  EXPECT_EQ(checked_of(0), 0);
  EXPECT_EQ(checked_of(-1), 0);
  EXPECT_NEAR(checked_of(.1), 1000, 200);
  EXPECT_EQ(checked_of(1), 10'000);
}

}  // namespace
}  // namespace pinion::cuda
