// Segments that are registered before a request needs them (engine/segment_preparation.h).

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "fixture.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/in_child.h"

namespace pinion::arena_test {
namespace {

using test::eventually;

class ArenaAheadTest : public ArenaTest {
 protected:
  void start_ahead(std::uint64_t limit = 0, const char* device = "emulated") {
    start(limit, device, false, true);
  }
  /// The one domain that registers is on a device of the test's.
  test::FakeDevice& start_on_fake_device(bool remote = false) {
    start_ahead(0, "auto");
    return borrow_device(remote);
  }
  std::uint64_t own_registrations() const { return this_thread()->counters[domain_].registrations.get(); }
  static ArenaFigures figures() { return lease_path().arena().figures(); }
  static bool await_ahead(std::uint64_t count) {
    return eventually([count] { return figures().ahead == count; });
  }
};

TEST_F(ArenaAheadTest, ARequestToASegmentThatHadTimeRegistersNothing) {
  start_ahead();
  char* const block = take(40 * kMiB);
  ASSERT_TRUE(await_ahead(1));
  EXPECT_LT(registered(), 44 * kMiB) << "what the heap does not use of the segment stays unregistered";
  EXPECT_TRUE(serves(block, 40 * kMiB));
  EXPECT_EQ(own_registrations(), 0u);
  EXPECT_EQ(resident(block, 40 * kMiB), 40 * kMiB);
  const runlog::Counters counters = Engine::running()->counters().all();
  EXPECT_EQ(counters.registrations, 1u);
  EXPECT_EQ(counters.registration_ns, 0u) << "no time of the program's";
  process_heap().free(block);
}

TEST_F(ArenaAheadTest, BlocksFromBeforeTheDomainAndSegmentsToComeAreRegistered) {
  char* const before = take(4 * kMiB);
  test::FakeDevice& device = start_on_fake_device();
  ASSERT_TRUE(await_ahead(1));
  char* const later = take(70 * kMiB);
  ASSERT_TRUE(await_ahead(2));
  EXPECT_TRUE(serves(before, 4 * kMiB) && serves(later, 70 * kMiB));
  EXPECT_EQ(own_registrations(), 0u);
  EXPECT_EQ(device.calls(), 2u);
  process_heap().free(before);
  process_heap().free(later);
}

TEST_F(ArenaAheadTest, ARequestWaitsForItsOwnSegmentAlone) {
  test::FakeDevice& device = start_on_fake_device();
  std::atomic<bool> holds_back{true}, arrived{false};
  const pid_t self = ::gettid();
  device.refuse = [&](Range, Access) {
    if (::gettid() == self) return 0;
    arrived = true;
    while (holds_back) std::this_thread::yield();
    return 0;
  };
  char* const first = take(40 * kMiB);
  ASSERT_TRUE(eventually([&] { return arrived.load(); }));
  char* const second = take(70 * kMiB);
  EXPECT_TRUE(serves(second, 70 * kMiB)) << "another segment is being registered";
  EXPECT_EQ(own_registrations(), 1u);
  std::thread([&] {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      holds_back = false;
    }).detach();
    EXPECT_TRUE(acquires(first, kMiB)) << "it waits";
    EXPECT_EQ(own_registrations(), 0u);
  }).join();
  process_heap().free(first);
  process_heap().free(second);
}

TEST_F(ArenaAheadTest, ARequestWaitsForALimitedTime) {
  test::FakeDevice& device = start_on_fake_device();
  std::atomic<bool> holds_back{true}, arrived{false};
  const pid_t self = ::gettid();
  device.refuse = [&](Range, Access) {
    if (::gettid() == self) return 0;
    arrived = true;
    while (holds_back) std::this_thread::yield();
    return 0;
  };
  char* const block = take(40 * kMiB);
  ASSERT_TRUE(eventually([&] { return arrived.load(); }));
  EXPECT_TRUE(acquires(block, kMiB));
  EXPECT_EQ(own_registrations(), 1u);
  holds_back = false;
  EXPECT_TRUE(eventually([&] { return serves(block, 40 * kMiB); }));
  process_heap().free(block);
}

TEST_F(ArenaAheadTest, NothingIsRegisteredBeyondTheLimit) {
  start_ahead(16 * kMiB);
  char* const large = take(40 * kMiB);
  char* const small = take(4 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(registered(), 16 * kMiB);
  EXPECT_EQ(figures().refused, 0u);
  EXPECT_TRUE(acquires(large, 8 * kMiB));
  process_heap().free(large);
  process_heap().free(small);
}

TEST_F(ArenaAheadTest, ADeviceThatRefusesIsAskedOnce) {
  test::FakeDevice& device = start_on_fake_device();
  std::atomic<int> asked{0};
  std::atomic<bool> refuses{true};
  device.refuse = [&](Range, Access) { return ++asked, refuses ? ENOMEM : 0; };
  testing::internal::CaptureStderr();
  char* const first = take(40 * kMiB);
  ASSERT_TRUE(eventually([&] { return figures().refused == 1; }));
  const int before = asked;
  char* const second = take(70 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(asked, before);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("pinion: a segment of the arena stays unregistered")) << said;
  refuses = false;
  EXPECT_TRUE(serves(second, kMiB)) << "at its first request";
  process_heap().free(first);
  process_heap().free(second);
}

TEST_F(ArenaAheadTest, KeysForPeersReachNoMoreThanTheUserAllows) {
  test::FakeDevice& device = start_on_fake_device(true);
  char* const block = take(40 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(device.calls(), 0u) << "the first request for peers would close the segment";
  EXPECT_TRUE(serves(block, kMiB));
  process_heap().free(block);
}

TEST_F(ArenaAheadTest, ADomainClosesWhileItsSegmentsAreRegistered) {
  start_ahead(0, "auto");
  for (int round = 0; round < 30; ++round) {
    borrow_device();
    char* const block = take(static_cast<std::size_t>(4 + round) * kMiB);
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    const Error error = Engine::running()->domains().close(domain_);
    ASSERT_FALSE(error) << error.message;
    process_heap().free(block);
    process_heap().relieve();
  }
}

TEST_F(ArenaAheadTest, ChildrenHaveTheBlocksWhileSegmentsAreRegistered) {
  start_ahead(0, "pin");
  for (int round = 0; round < 8; ++round) {
    char* const block = take(8 * kMiB);
    std::memset(block, 7, 8 * kMiB);
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    test::in_child([&] { EXPECT_TRUE(is_filled(block, 8 * kMiB, 7)); });
    EXPECT_TRUE(serves(block, 8 * kMiB) || acquires(block, 8 * kMiB));
    process_heap().free(block);
    process_heap().relieve();
  }
}

TEST_F(ArenaAheadTest, TheRunMayEndAtAnyMoment) {
  for (int round = 0; round < 10; ++round) {
    start_ahead();
    char* const block = take(60 * kMiB);
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    Engine::stop();
    process_heap().free(block);
    process_heap().relieve();
  }
}

}  // namespace
}  // namespace pinion::arena_test
