// Deregistration by the lease path on the application's threads, by the engine's own leases.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "engine/engine.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// An engine with retention `kind`, and memory for `leases` leases of 1 MiB.
class LeasePathTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kLeases = 32;

  void start(RetentionKind kind) {
    Options options;
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

  LeasePath& leases() { return Engine::running()->leases(); }
  std::size_t registered() { return Engine::running()->domains().registered_bytes(); }
  /// Of every second MiB: neighbours stay regions of their own.
  void acquire(std::size_t number, Transfer& transfer) {
    const Address begin = memory_.begin + 2 * number * kMiB;
    EXPECT_TRUE(leases().acquire(*this_thread(), 0, {}, {begin, begin + kMiB}, Access::read, transfer,
                                 Refusal::report));
  }
  void acquire_all() {
    transfers_.resize(kLeases);
    for (std::size_t i = 0; i < kLeases; ++i) acquire(i, transfers_[i]);
  }
  void release_all() {
    for (Transfer& transfer : transfers_) leases().release(*this_thread(), transfer);
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
        for (Transfer& transfer : transfers) leases().release(*this_thread(), transfer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(registered(), kMiB);
}

TEST_F(LeasePathTest, OnDemandKeepsNothing) {
  start(RetentionKind::on_demand);
  acquire_all();
  release_all();
  EXPECT_EQ(registered(), 0u);
}

}  // namespace
}  // namespace pinion
