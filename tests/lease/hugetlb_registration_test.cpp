// Registration in hugetlb memory, by the engine on device emulated: whole hugepages, their figures in the
// log, limits, memory events, children.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device/kernel/mapped_pages.h"
#include "process/engine.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "simulate/simulation.h"
#include "support/eventually.h"
#include "support/hugepage_pool.h"
#include "support/in_child.h"
#include "support/sanitizers.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

using test::HugepagePool;
using test::HugetlbMemory;
using test::kHugepageBytes;

constexpr std::size_t kBlock = std::size_t{64} << 10;

class HugetlbRegistration : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pool_.has_pages()) GTEST_SKIP() << "no hugepages can be reserved here";
    mapped_pages().look_again();
  }
  void TearDown() override { Engine::stop(); }

  void start(Options options = {}, RetentionKind kind = RetentionKind::leave_pinned) {
    options.retention = kind;
    options.device = "emulated";
    options.nic = "none";
    options.log = log_;
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
  }
  LeasePath& lease_path() { return Engine::running()->lease_path(); }
  Domain& domain() { return Engine::running()->domains().domain(0); }
  std::size_t registered() { return domain().registered_bytes(); }

  void acquire(Range range, Transfer& transfer) {
    const CallPoint call{ticks_now(), 1, CallKind::send};
    Error error;
    EXPECT_TRUE(
        lease_path().lease(*this_thread(), 0, call, range, Access::read, transfer, Refusal::report, &error))
        << error.message;
  }
  runlog::Outcome use(Range range) {
    Transfer transfer;
    acquire(range, transfer);
    const runlog::Outcome outcome = transfer.record.outcome;
    lease_path().release(*this_thread(), transfer);
    return outcome;
  }
  Range region_of(Range range) {
    Transfer transfer;
    acquire(range, transfer);
    const Range region = transfer.region() != nullptr ? transfer.region()->range() : Range{};
    lease_path().release(*this_thread(), transfer);
    return region;
  }
  runlog::Log read() {
    Engine::stop();
    std::vector<runlog::Log> logs;
    const Error error = runlog::read_logs({log_}, logs);
    EXPECT_FALSE(error) << error.message;
    return logs.empty() ? runlog::Log{} : std::move(logs[0]);
  }

 private:
  const HugepagePool pool_{8};
  const TemporaryDirectory directory_;
  const std::string log_ = directory_.path() + "/log";
};

TEST_F(HugetlbRegistration, BlocksOfAHugepageShareOneRegistration) {
  const HugetlbMemory memory(2 * kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  start();
  EXPECT_EQ(use(memory.part(100, kBlock)), runlog::Outcome::miss);
  EXPECT_EQ(registered(), kHugepageBytes);
  for (std::size_t block = 0; block < kHugepageBytes / kBlock; ++block)
    EXPECT_EQ(use(memory.part(block * kBlock, kBlock)), runlog::Outcome::hit);
  EXPECT_EQ(domain().region_count(), 1u);
  EXPECT_EQ(region_of(memory.part(100, kBlock)), memory.part(0, kHugepageBytes));
  EXPECT_EQ(use(memory.part(kHugepageBytes, 1)), runlog::Outcome::miss);
  EXPECT_EQ(registered(), 2 * kHugepageBytes);
}

TEST_F(HugetlbRegistration, OrdinaryMemoryKeepsItsPages) {
  start();
  void* const memory =
      ::mmap(nullptr, 2 * kHugepageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::madvise(memory, 2 * kHugepageBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, 2 * kHugepageBytes);
  const Range block = Range::of(static_cast<char*>(memory) + kBlock, kBlock);
  EXPECT_EQ(region_of(block), block.to_pages());
  ::munmap(memory, 2 * kHugepageBytes);
}

TEST_F(HugetlbRegistration, ARangeAcrossTheEndOfTheMapping) {
  // Ordinary pages on both sides of two hugepages.
  void* const place =
      ::mmap(nullptr, 6 * kHugepageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  const Address middle = (reinterpret_cast<Address>(place) + 3 * kHugepageBytes) & ~(kHugepageBytes - 1);
  {
    const HugetlbMemory memory(2 * kHugepageBytes, reinterpret_cast<void*>(middle));
    ASSERT_TRUE(memory.is_mapped());
    start();
    const Address end = memory.range().end;
    EXPECT_EQ(region_of({end - 100, end + 100}), (Range{end - kHugepageBytes, end + page_size()}));
    EXPECT_EQ(region_of({middle - 100, middle + 100}),
              (Range{middle - page_size(), middle + kHugepageBytes}));
  }
  ::munmap(place, 6 * kHugepageBytes);
}

TEST_F(HugetlbRegistration, ALimitBelowTheHugepageLeavesThePages) {
  const HugetlbMemory memory(kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  Options options;
  options.limit = kHugepageBytes / 2;
  start(options);
  EXPECT_EQ(use(memory.part(0, kBlock)), runlog::Outcome::miss);
  EXPECT_EQ(use(memory.part(kBlock, kBlock)), runlog::Outcome::miss);
  EXPECT_EQ(use(memory.part(0, kBlock)), runlog::Outcome::hit);
  EXPECT_EQ(registered(), 2 * kBlock);
}

TEST_F(HugetlbRegistration, UnmappingAPartDoomsTheRegion) {
  const HugetlbMemory memory(4 * kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  start();
  EXPECT_EQ(use(memory.part(kHugepageBytes / 2, 2 * kHugepageBytes)), runlog::Outcome::miss);
  EXPECT_EQ(registered(), 3 * kHugepageBytes);
  Transfer held;
  acquire(memory.part(3 * kHugepageBytes, kBlock), held);
  void* const last = reinterpret_cast<void*>(memory.range().begin + 2 * kHugepageBytes);
  ASSERT_EQ(::munmap(last, kHugepageBytes), 0);
  EXPECT_EQ(use(memory.part(0, kBlock)), runlog::Outcome::miss) << "the region lost a page";
  EXPECT_EQ(region_of(memory.part(0, kBlock)), memory.part(0, kHugepageBytes));
  EXPECT_FALSE(held.region()->word.load().doomed()) << "its hugepage stays";
  lease_path().release(*this_thread(), held);
}

TEST_F(HugetlbRegistration, HoldsOfPeersShareTheHugepage) {
  const HugetlbMemory memory(kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  start();
  PeerHold first, second;
  ASSERT_FALSE(lease_path().hold(*this_thread(), 0, memory.part(0, kBlock), Access::all, first));
  ASSERT_FALSE(lease_path().hold(*this_thread(), 0, memory.part(kBlock, kBlock), Access::all, second));
  EXPECT_EQ(first.region.region, second.region.region);
  EXPECT_EQ(registered(), kHugepageBytes);
  lease_path().end_hold(*this_thread(), first);
  EXPECT_EQ(registered(), kHugepageBytes);
  lease_path().end_hold(*this_thread(), second);
  EXPECT_EQ(registered(), 0u);
}

TEST_F(HugetlbRegistration, AChildRegistersAnew) {
  if (kSanitized) GTEST_SKIP() << "no threads after a fork: a sanitizer's locks may be taken there";
  const HugetlbMemory memory(kHugepageBytes, nullptr, MAP_SHARED);
  ASSERT_TRUE(memory.is_mapped());
  start();
  EXPECT_EQ(use(memory.part(0, kBlock)), runlog::Outcome::miss);
  test::in_child([&] {
    Engine::stop();
    start();
    EXPECT_EQ(region_of(memory.part(kBlock, 1)), memory.range());
  });
  EXPECT_EQ(region_of(memory.part(kBlock, kBlock)), memory.range());
}

TEST_F(HugetlbRegistration, TheLogCountsHugepages) {
  const HugetlbMemory memory(4 * kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  start();
  const Range ordinary = [] {
    static char buffer[4 * kBlock];
    return Range::of(buffer, sizeof buffer);
  }();
  for (int round = 0; round < 3; ++round)
    for (std::size_t page = 0; page < 3; ++page) {
      use(memory.part(page * kHugepageBytes + 100, kBlock));
      use(ordinary);
    }
  const std::size_t most = registered();
  EXPECT_EQ(most, 3 * kHugepageBytes + ordinary.to_pages().bytes());
  const runlog::Log log = read();
  EXPECT_EQ(log.live.counters.leave_pinned_bytes, most);
  EXPECT_EQ(runlog::leave_pinned_timeline(log).peak(), most);
  EXPECT_EQ(runlog::registered_timeline(log).peak(), most);
  EXPECT_GE(runlog::oracle_timeline(log).peak(), kHugepageBytes) << "a transfer holds a hugepage";
  const Range all = memory.range();
  for (const runlog::Event& event : log.events) {
    if (runlog::uses_of(event) == 0) continue;
    EXPECT_EQ(event.page_order != 0, all.contains({event.address, event.address + event.bytes}));
  }

  simulate::Workload replay;
  ASSERT_FALSE(simulate::log_workload({log}, {}, replay));
  simulate::Settings settings;
  settings.retention = RetentionKind::leave_pinned;
  const simulate::Result result = simulate::simulate(replay, settings);
  EXPECT_EQ(result.registered.peak, most) << "the replay registers what the run did";
  EXPECT_EQ(result.registered.leave_pinned_peak, most);
}

// The helper lets this memory go and registers it ahead of a loop's next turn.
TEST_F(HugetlbRegistration, TheHelperRegistersHugepagesAhead) {
  const HugetlbMemory memory(2 * kHugepageBytes);
  ASSERT_TRUE(memory.is_mapped());
  Options options;
  options.time_budget = 1;
  options.minimum_gain = 0;
  start(options, RetentionKind::helper);
  const auto turn = [&] {
    use(memory.part(0, kBlock));
    ::usleep(20'000);
  };
  for (int i = 0; i < 40; ++i) turn();
  const runlog::Log log = read();
  const auto by_helper = [](const runlog::Event& event) {
    return event.kind == runlog::EventKind::registration && (event.flags & runlog::kByHelper) != 0 &&
           (event.flags & runlog::kFailed) == 0;
  };
  if (std::none_of(log.events.begin(), log.events.end(), by_helper))
    GTEST_SKIP() << "the helper kept the buffer, or came late";
  for (const runlog::Event& event : log.events) {
    if (!by_helper(event)) continue;
    EXPECT_EQ(event.address, memory.range().begin);
    EXPECT_EQ(event.bytes, kHugepageBytes);
  }
}

}  // namespace
}  // namespace pinion
