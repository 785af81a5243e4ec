// Deregistration by the lease path on the application's threads, by the engine's own leases.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "process/engine.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// An engine with retention `kind`, and memory for `leases` leases of 1 MiB.
class LeasePathTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kLeases = 32;

  void start(RetentionKind kind, Options options = {}) {
    options.retention = kind;
    options.lru_size = kMiB;
    options.device = "emulated";
    options.nic = "none";
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
    void* const memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memory_ = Range::of(memory, bytes_);
  }
  void TearDown() override {
    Engine::stop();
    ::munmap(reinterpret_cast<void*>(memory_.begin), bytes_);
  }

  Range part(std::size_t number) const {
    const Address begin = memory_.begin + 2 * number * kMiB;
    return {begin, begin + kMiB};
  }

  LeasePath& lease_path() { return Engine::running()->lease_path(); }
  std::size_t registered() { return Engine::running()->domains().registered_bytes(); }
  /// Acquires every second MiB: neighbours stay regions of their own.
  void acquire(std::size_t number, Transfer& transfer) {
    EXPECT_TRUE(
        lease_path().lease(*this_thread(), 0, {}, part(number), Access::read, transfer, Refusal::report));
  }
  void acquire_all() {
    transfers_.resize(kLeases);
    for (std::size_t i = 0; i < kLeases; ++i) acquire(i, transfers_[i]);
  }
  void release_all() {
    for (Transfer& transfer : transfers_) lease_path().release(*this_thread(), transfer);
  }

 private:
  const std::size_t bytes_ = 2 * kLeases * kMiB;
  Range memory_;
  std::vector<Transfer> transfers_;
};

// Each registration finds all others in use; the releases bring the size back, without the helper's help.
TEST(SampledTime, OneInterruptedSampleCountsLittle) {
  SampledTime first;
  first.add(16'000'000, 10'000);  // before there is anything to compare it with
  EXPECT_EQ(first.ticks(), 10'000u);
  SampledTime later;
  for (int i = 0; i < 3; ++i) later.add(200, 10);
  later.add(16'000'000, 10);
  EXPECT_LE(later.ticks(), 600u + 4 * 200) << "four times the mean";
  EXPECT_EQ(later.samples(), 4u);
}

TEST(SampledTime, SlowMachinesAreMeasuredTruly) {
  SampledTime time;
  for (int i = 0; i < 1000; ++i) time.add(1'000'000, 10'000);
  EXPECT_GT(time.ticks() / time.samples(), 900'000u);
}

TEST_F(LeasePathTest, LruHoldsItsSizeAfterManyLeasesAtOnce) {
  start(RetentionKind::lru);
  acquire_all();
  EXPECT_EQ(registered(), kLeases * kMiB);
  release_all();
  EXPECT_LE(registered(), kMiB);
  const runlog::Counters counters = Engine::running()->counters().all();
  EXPECT_EQ(counters.registrations, kLeases);
  EXPECT_GE(counters.deregistrations, kLeases - 1);
}

// Threads whose leases overlap in time: each claims for itself, and all together keep to the size in the end.
TEST_F(LeasePathTest, LruHoldsItsSizeAmongThreads) {
  start(RetentionKind::lru);
  constexpr std::size_t kThreads = 4;
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([this, number] {
      for (std::size_t round = 0; round < 50; ++round) {
        Transfer transfers[kLeases / kThreads];
        std::size_t i = number;
        for (Transfer& transfer : transfers) {
          acquire(i, transfer);
          i += kThreads;
        }
        for (Transfer& transfer : transfers) lease_path().release(*this_thread(), transfer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(registered(), kMiB);
}

// The helper could register it ahead otherwise, when there is room.
TEST_F(LeasePathTest, TheEndOfMemoryWhoseTransferBouncedIsSeen) {
  const TemporaryDirectory directory;
  Options options;
  options.limit = kMiB;
  options.poll = kSecond;  // what the helper does by itself comes later
  options.log = directory.path() + "/log";
  start(RetentionKind::helper, options);
  Transfer held, bounced;
  const CallPoint call{ticks_now(), 1, CallKind::send};
  EXPECT_TRUE(lease_path().lease(*this_thread(), 0, call, part(0), Access::read, held, Refusal::report));
  const Range gone = part(5);  // far from memory that is watched for another reason
  EXPECT_FALSE(lease_path().lease(*this_thread(), 0, call, gone, Access::read, bounced, Refusal::report));
  ASSERT_EQ(::madvise(reinterpret_cast<void*>(gone.begin), gone.bytes(), MADV_DONTNEED), 0);
  lease_path().release(*this_thread(), held);
  Engine::stop();
  std::vector<runlog::Log> logs;
  const Error unread = runlog::read_logs({options.log}, logs);
  ASSERT_FALSE(unread) << unread.message;
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_TRUE(std::any_of(logs[0].events.begin(), logs[0].events.end(), [&](const runlog::Event& event) {
    return event.kind == runlog::EventKind::memory_event && event.address == gone.begin;
  }));
}

// They stay registered whatever the limit, count for it, and are told apart in the log.
TEST_F(LeasePathTest, AHoldOfPeersIsNoTransfer) {
  const TemporaryDirectory directory;
  Options options;
  options.limit = 3 * kMiB;
  options.log = directory.path() + "/log";
  start(RetentionKind::leave_pinned, options);
  PeerHold hold;
  const Error refused = lease_path().hold(*this_thread(), 0, part(0), Access::all, hold);
  ASSERT_FALSE(refused) << refused.message;
  for (std::size_t i = 1; i < 8; ++i) {
    Transfer transfer;
    const CallPoint call{ticks_now(), 1, CallKind::send};
    EXPECT_TRUE(
        lease_path().lease(*this_thread(), 0, call, part(i), Access::read, transfer, Refusal::report));
    lease_path().release(*this_thread(), transfer);
  }
  EXPECT_EQ(registered(), 3 * kMiB);
  EXPECT_TRUE(hold.region.region->word.load().registered()) << "it went as a victim";
  lease_path().end_hold(*this_thread(), hold);
  EXPECT_EQ(registered(), 2 * kMiB);
  Engine::stop();
  std::vector<runlog::Log> logs;
  const Error unread = runlog::read_logs({options.log}, logs);
  ASSERT_FALSE(unread) << unread.message;
  const auto count = [&](runlog::EventKind kind) {
    return std::count_if(logs[0].events.begin(), logs[0].events.end(), [&](const runlog::Event& event) {
      return event.kind == kind && (kind == runlog::EventKind::lease || event.address == part(0).begin);
    });
  };
  EXPECT_EQ(count(runlog::EventKind::hold_begin), 1);
  EXPECT_EQ(count(runlog::EventKind::hold_end), 1);
  EXPECT_EQ(count(runlog::EventKind::lease), 7);
  EXPECT_EQ(runlog::oracle_timeline(logs[0]).peak(), kMiB) << "of one transfer at a time";
}

TEST_F(LeasePathTest, OnDemandKeepsNothing) {
  start(RetentionKind::on_demand);
  acquire_all();
  release_all();
  EXPECT_EQ(registered(), 0u);
}

}  // namespace
}  // namespace pinion
