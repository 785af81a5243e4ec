// Segments that are registered before a request needs them (prepare/segment_preparation.h).

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "fixture.h"
#include "process/engine.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/held_faults.h"
#include "support/in_child.h"

namespace pinion::arena_test {
namespace {

using test::eventually;

/// Registrations by other threads than the test's wait until they are let go.
class HeldElsewhere {
 public:
  explicit HeldElsewhere(test::FakeDevice& device) {
    device.refuse = [state = state_, self = ::gettid()](Range, Access) {
      if (::gettid() == self) return 0;
      state->arrived = true;
      while (!state->let_go) std::this_thread::yield();
      return 0;
    };
  }
  ~HeldElsewhere() { let_go(); }
  HeldElsewhere(const HeldElsewhere&) = delete;
  HeldElsewhere& operator=(const HeldElsewhere&) = delete;

  bool await() const {
    return eventually([this] { return state_->arrived.load(); });
  }
  void let_go() { state_->let_go = true; }

 private:
  struct State {
    std::atomic<bool> arrived{false}, let_go{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  ///< the device outlives this
};

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
  static ArenaFigures figures() { return Engine::running()->arena().figures(); }
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

TEST_F(ArenaAheadTest, LittleIsRegisteredBeyondABlock) {
  for (const std::size_t size : {5, 33, 65, 100}) {
    start_ahead();
    char* const block = take(size * kMiB);
    ASSERT_TRUE(await_ahead(1));
    EXPECT_LE(registered(), size * kMiB + std::max(kHugepage, size * kMiB / 20)) << size;
    EXPECT_TRUE(serves(block, size * kMiB));
    process_heap().free(block);
    Engine::stop();
    process_heap().relieve();
  }
}

TEST_F(ArenaAheadTest, SegmentsWhoseBlocksHaveGoneWaitForTheNextOne) {
  process_heap().free(take(64 * kMiB));
  start_ahead();
  char* const block = take(5 * kMiB);
  ASSERT_TRUE(await_ahead(1));
  EXPECT_LE(registered(), 7 * kMiB) << "the block's part alone";
  EXPECT_TRUE(serves(block, 5 * kMiB));
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
  HeldElsewhere held(start_on_fake_device());
  char* const first = take(40 * kMiB);
  ASSERT_TRUE(held.await());
  char* const second = take(70 * kMiB);
  EXPECT_TRUE(serves(second, 70 * kMiB)) << "another segment is being registered";
  EXPECT_EQ(own_registrations(), 1u);
  std::thread([&] {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      held.let_go();
    });
    const Time begun = monotonic_now();
    EXPECT_TRUE(acquires(first, kMiB));
    // On a busy machine the other one may come too late.
    if (monotonic_now() - begun < 10 * kMillisecond) {
      EXPECT_EQ(own_registrations(), 0u) << "it waits";
    }
    other.join();
  }).join();
  process_heap().free(first);
  process_heap().free(second);
}

TEST_F(ArenaAheadTest, ARequestWaitsForALimitedTime) {
  HeldElsewhere held(start_on_fake_device());
  char* const block = take(40 * kMiB);
  ASSERT_TRUE(held.await());
  EXPECT_TRUE(acquires(block, kMiB));
  EXPECT_EQ(own_registrations(), 1u);
  held.let_go();
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

TEST_F(ArenaAheadTest, FaultsThatTheProgramServesItselfAreLeftToIt) {
  if (kSanitized) GTEST_SKIP() << "no threads after a fork";
  if (!test::HeldFaults::allowed()) GTEST_SKIP() << "faults of the kernel cannot be served";
  for (const auto by : {test::HeldFaults::By::libc, test::HeldFaults::By::own_code})
    test::in_child([this, by] {
      char* const block = take(64 * kMiB);
      const test::HeldFaults faults(Range::of(block, 64 * kMiB), by);
      ASSERT_TRUE(faults.held());
      start_ahead();
      char* const other = take(4 * kMiB);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Engine::stop();
      EXPECT_FALSE(faults.any()) << "Pinion's, not the program's";
      process_heap().free(other);
    });
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
