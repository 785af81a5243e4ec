// Runs of hits on settled regions: every use is counted once, and the figures of a log stay those of a log
// that has each use.
#include "engine/use_runs.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/engine.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::uint64_t kPage = 4096;

Record hit(Ticks begin, Ticks end, Address address, std::uint64_t site) {
  Record record;
  record.begin = begin;
  record.end = end;
  record.address = address;
  record.bytes = 4 * kPage;
  record.site = site;
  record.kind = runlog::EventKind::lease;
  return record;
}

/// The records that a thread leaves.
class Thread {
 public:
  void use(const Record& lease, bool settled) {
    const auto keep = [this](const Record& run) { records.push_back(run); };
    if (!runs_.end_or_count(lease, settled, keep)) records.push_back(lease);
  }
  void leave() {
    runs_.end_all([this](const Record& run) { records.push_back(run); });
  }
  bool any() const { return runs_.any(); }

  std::vector<Record> records;

 private:
  UseRuns runs_;
};

std::uint64_t uses_of(const std::vector<Record>& records) {
  std::uint64_t uses = 0;
  for (const Record& record : records) uses += runlog::uses_of(event_of({record, 0}, {}));
  return uses;
}

TEST(UseRuns, TheFirstUseHasARecordTheOthersShareOne) {
  Thread thread;
  for (Ticks at = 1000; at < 2000; at += 100) thread.use(hit(at, at + 30, kPage, 1), true);
  EXPECT_TRUE(thread.any());
  thread.leave();
  EXPECT_FALSE(thread.any());
  ASSERT_EQ(thread.records.size(), 2u);
  EXPECT_EQ(thread.records[0].kind, runlog::EventKind::lease);
  const runlog::Event run = event_of({thread.records[1], 3}, {});
  EXPECT_EQ(run.kind, runlog::EventKind::uses);
  EXPECT_EQ(run.count, 9u);
  EXPECT_EQ(run.leased_ns, 9u * 30);
  EXPECT_EQ(run.begin_ns, 1100);
  EXPECT_EQ(run.end_ns, 1930);
  EXPECT_EQ(run.site, 1u);
  EXPECT_EQ(run.thread, 3u);
}

TEST(UseRuns, AUseOfARegionThatIsNotSettledEndsTheRunFirst) {
  Thread thread;
  for (Ticks at = 1000; at < 1500; at += 100) thread.use(hit(at, at + 30, kPage, 1), true);
  thread.use(hit(1500, 1530, kPage, 1), false);
  EXPECT_FALSE(thread.any());
  ASSERT_EQ(thread.records.size(), 3u);
  EXPECT_EQ(thread.records[1].count(), 4u);
  EXPECT_EQ(thread.records[2].begin, 1500u);
}

TEST(UseRuns, ARegionOfAnotherGenerationBeginsAnew) {
  Thread thread;
  Record lease = hit(1000, 1030, kPage, 1);
  for (int i = 0; i < 4; ++i) thread.use(lease, true);
  lease.region_generation = 7;
  thread.use(lease, true);
  ASSERT_EQ(thread.records.size(), 3u);
  EXPECT_EQ(thread.records[1].count(), 3u);
}

TEST(UseRuns, ARunThatGoesNoFurtherEndsSoonAfterOthers) {
  Thread thread;
  for (int i = 0; i < 4; ++i) thread.use(hit(1000, 1030, kPage, 1), true);
  for (Ticks at = 1; at <= 16; ++at) thread.use(hit(at << 30, (at << 30) + 1, 8 * kPage, 2), false);
  EXPECT_FALSE(thread.any());
  EXPECT_EQ(uses_of(thread.records), 20u);
}

// Ping-pong over one buffer, from two call sites, with a look of the helper each millisecond.
TEST(UseRuns, FiguresOfALogStayThose) {
  Thread all, counted;
  Ticks now = 1'000'000;
  for (int use = 0; use < 4000; ++use) {
    const Record lease = hit(now, now + 4000 + now % 700, 16 * kPage, 1 + use % 2);
    all.use(lease, false);
    counted.use(lease, now % 1'000'000 > 50'000);
    now = lease.end + 2000 + now % 900;
  }
  counted.leave();
  EXPECT_EQ(uses_of(counted.records), 4000u);
  EXPECT_LT(counted.records.size(), all.records.size() / 10);
  const auto report_of = [&](const std::vector<Record>& records) {
    runlog::Log log{};
    log.header.page_bytes = kPage;
    log.header.start_ns = 1'000'000;
    log.live.last_ns = static_cast<Time>(now);
    log.live.complete = 1;
    log.live.series_bin_ns = 100'000;
    log.live.domains[0].fit_register_a_ns = 246;
    for (const Record& record : records) log.events.push_back(event_of({record, 0}, {}));
    return runlog::analyse({log});
  };
  const runlog::Report full = report_of(all.records), run = report_of(counted.records);
  EXPECT_EQ(run.registered().oracle_peak, full.registered().oracle_peak);
  EXPECT_NEAR(run.registered().oracle_mean, full.registered().oracle_mean,
              0.02 * full.registered().oracle_mean);
  EXPECT_DOUBLE_EQ(run.registered().leave_pinned_mean, full.registered().leave_pinned_mean);
  ASSERT_EQ(run.call_sites.size(), full.call_sites.size());
  for (std::size_t i = 0; i < run.call_sites.size(); ++i) {
    EXPECT_EQ(run.call_sites[i].acquires, full.call_sites[i].acquires);
    EXPECT_EQ(run.call_sites[i].bytes, full.call_sites[i].bytes);
  }
}

// A region that settles live: its hits are counted in runs, and the log has all of them.
TEST(UseRuns, ABufferInUseAgainAndAgainLeavesFewRecords) {
  const TemporaryDirectory directory;
  Options options;
  options.retention = RetentionKind::helper;
  options.device = "emulated";
  options.nic = "connectx";
  options.log = directory.path() + "/log";
  const Error error = Engine::start(options, {}, "test");
  ASSERT_FALSE(error) << error.message;
  alignas(4096) static char memory[16 * kPage];
  LeasePath& leases = Engine::running()->leases();
  std::uint64_t uses = 0;
  const auto use = [&] {
    Transfer transfer;
    const CallPoint call{ticks_now(), 1, CallKind::send};
    ASSERT_TRUE(leases.acquire(*this_thread(), 0, call, Range::of(memory, sizeof memory), Access::read,
                               transfer, Refusal::report));
    leases.release(*this_thread(), transfer);
    ++uses;
  };
  // However busy the machine is, the helper looks some time.
  while (!this_thread()->counts_runs) use();
  for (int i = 0; i < 1000; ++i) use();
  Engine::stop();
  std::vector<runlog::Log> logs;
  const Error unread = runlog::read_logs({options.log}, logs);
  ASSERT_FALSE(unread) << unread.message;
  ASSERT_EQ(logs.size(), 1u);
  std::uint64_t logged = logs[0].live.counters.records_dropped, of_runs = 0;
  for (const runlog::Event& event : logs[0].events) {
    logged += runlog::uses_of(event);
    if (event.kind == runlog::EventKind::uses) of_runs += event.count;
  }
  EXPECT_EQ(logs[0].live.counters.acquires, uses);
  // A full ring may refuse the record of a whole run.
  EXPECT_LE(logged, uses);
  if (logs[0].live.counters.records_dropped == 0) {
    EXPECT_EQ(logged, uses);
    EXPECT_GT(of_runs, 0u);
  }
}

}  // namespace
}  // namespace pinion
