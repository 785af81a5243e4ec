// Settled regions, whose hits leave a count alone: every use is counted once, the figures of a log stay those
// of a log that has each use, and a region at rest is settled no more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "papers/patterns/pattern.h"
#include "process/engine.h"
#include "retention/buffers.h"
#include "retention/costs.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "simulate/process.h"
#include "simulate/simulation.h"
#include "support/runlog_files.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"

namespace pinion {
namespace {

constexpr std::uint64_t kPage = 4096;

using namespace simulate;

const CostModel kNic{"test", 246, 16000, 62, 4000, {}};

/// A simulated run, as two logs: with a record of each use, and with those that the helper took.
class TwoLogs : private Observer {
 public:
  explicit TwoLogs(const Program& program) {
    Process::Settings settings;
    settings.nic = kNic;
    Process process(settings, make_predictor("adaptive", 2, 4), *this);
    std::deque<ProgramScript> scripts;
    for (const ThreadProgram& thread : program.threads) {
      scripts.emplace_back(thread);
      process.add_thread(scripts.back());
    }
    while (process.running() || process.helper_busy()) process.step(kNever);
    process.finish();
    for (runlog::Log* log : {&all, &counted}) {
      log->header.page_bytes = kPage;
      log->header.start_ns = kSecond;
      log->live.last_ns = process.now();
      log->live.complete = 1;
      log->live.series_bin_ns = kMillisecond;
      log->live.counters = process.counters();
      log->live.domains[0].fit_register_a_ns = kNic.register_ns_per_page;
      log->live.domains[0].fit_register_b_ns = kNic.register_ns_base;
    }
  }
  std::uint64_t in_runs() const {
    std::uint64_t uses = 0;
    for (const runlog::Event& event : counted.events) uses += event.count;
    return uses;
  }

  runlog::Log all{}, counted{};

 private:
  void used(const TakenRecord& lease) override { all.events.push_back(event_of(lease, {})); }
  void logged(const runlog::Event& event) override { counted.events.push_back(event); }
  void device_call(Time begin, Time end, Range pages, bool registration, bool failed, Actor actor) override {
    using runlog::EventKind;
    runlog::Event call = runlog::event(registration ? EventKind::registration : EventKind::deregistration,
                                       begin, end, pages.begin, pages.bytes());
    if (failed) call.flags |= runlog::kFailed;
    if (actor == Actor::helper) call.flags |= runlog::kByHelper;
    all.events.push_back(call);
    if (actor == Actor::helper) counted.events.push_back(call);  // the others leave records
  }
};

Program ping_pong() {
  ThreadProgram thread;
  for (std::uint64_t site : {1, 2}) {
    Operation acquire;
    acquire.range = {1 << 30, (1 << 30) + 16 * kPage};
    acquire.compute = 2 * kMicrosecond;
    acquire.site = site;
    Operation release;
    release.kind = Operation::Kind::release;
    release.transfer = 4 * kMicrosecond + static_cast<Duration>(site) * 500;
    thread.turn.push_back(acquire);
    thread.turn.push_back(release);
  }
  thread.turns = 20'000;
  return {{thread}, 1};
}

/// Rank 0 of a pattern, on a machine fast enough that its buffers settle.
Program fast(const char* name, std::uint64_t turns) {
  Pattern found;
  Placement placement;
  EXPECT_FALSE(find_pattern(name, found));
  EXPECT_FALSE(Placement::make(found.ranks, 1, "packed", placement));
  Machine machine;
  machine.flops = 1e13;
  machine.network_bytes_per_second = machine.memory_bytes_per_second = 1e12;
  return pattern_workload(found, turns, placement, machine).programs[0];
}

class SameFigures : public ::testing::TestWithParam<const char*> {
 protected:
  static Program program() {
    const std::string name = GetParam();
    return name == "ping-pong" ? ping_pong() : fast(name.c_str(), name == "is:A:4" ? 4000 : 75);
  }
};

void expect_alike(double counted, double all, const char* what) {
  EXPECT_NEAR(counted, all, 0.02 * all) << what;
}

TEST_P(SameFigures, OfALogWithRuns) {
  const TwoLogs run(program());
  const auto total = run.all.live.counters.acquires;
  EXPECT_GT(run.in_runs(), total / 4);
  EXPECT_LT(run.counted.events.size(), run.all.events.size());
  const runlog::Report all = runlog::analyse({run.all}), counted = runlog::analyse({run.counted});
  const runlog::RegisteredBytes& a = all.registered();
  const runlog::RegisteredBytes& c = counted.registered();
  EXPECT_EQ(counted.acquires.total, total);
  EXPECT_EQ(c.oracle_peak, a.oracle_peak);
  EXPECT_EQ(c.leave_pinned_peak, a.leave_pinned_peak);
  expect_alike(c.oracle_mean, a.oracle_mean, "oracle");
  expect_alike(c.leave_pinned_mean, a.leave_pinned_mean, "leave-pinned");
  expect_alike(c.mean, a.mean, "mean");
  // Which of a buffer's call sites a use had is not counted.
  ASSERT_EQ(counted.call_sites.size(), all.call_sites.size());
  std::uint64_t acquires = 0, bytes = 0;
  for (std::size_t i = 0; i < all.call_sites.size(); ++i) {
    acquires += counted.call_sites[i].acquires - all.call_sites[i].acquires;
    bytes += counted.call_sites[i].bytes - all.call_sites[i].bytes;
  }
  EXPECT_EQ(acquires, 0u);
  EXPECT_EQ(bytes, 0u);
}

TEST_P(SameFigures, OfAReplayOfALogWithRuns) {
  const TwoLogs run(program());
  Workload all, counted;
  ASSERT_FALSE(log_workload({run.all}, {}, all));
  ASSERT_FALSE(log_workload({run.counted}, {}, counted));
  for (const RetentionKind kind :
       {RetentionKind::leave_pinned, RetentionKind::on_demand, RetentionKind::helper}) {
    Settings settings;
    settings.retention = kind;
    settings.nic = kNic;
    const Result a = simulate::simulate(all, settings), c = simulate::simulate(counted, settings);
    EXPECT_EQ(c.acquires.total, a.acquires.total) << to_string(kind);
    // A run's leases come evenly, so transfers of two buffers may overlap that did not.
    if (kind != RetentionKind::on_demand) {
      EXPECT_EQ(c.registered.peak, a.registered.peak) << to_string(kind);
    }
    expect_alike(c.registered.mean, a.registered.mean, to_string(kind));
    expect_alike(c.registered.oracle_mean, a.registered.oracle_mean, to_string(kind));
    expect_alike(c.seconds, a.seconds, to_string(kind));
  }
}

INSTANTIATE_TEST_SUITE_P(SettledRegions, SameFigures, ::testing::Values("ping-pong", "cg:A:4", "is:A:4"),
                         [](const auto& info) { return test::test_name(info.param); });

enum class Log { kept, none };

/// Uses of one buffer, by a run of this process.
class LiveUses {
 public:
  explicit LiveUses(RetentionKind retention, Log log = Log::kept, std::uint64_t minimum_gain = 0) {
    options_.retention = retention;
    options_.minimum_gain = minimum_gain;
    options_.device = "emulated";
    options_.nic = "connectx";
    // Under a sanitizer, on one busy core, the helper would use up any budget by its looks, and rest.
    options_.time_budget = TimeBudget::kUnbounded;
    if (log == Log::kept) options_.log = directory_.path() + "/log";
    const Error error = Engine::start(options_, {}, "test");
    EXPECT_FALSE(error) << error.message;
  }
  ~LiveUses() { Engine::stop(); }

  void use() {
    LeasePath& leases = Engine::running()->lease_path();
    Transfer transfer;
    const CallPoint call{ticks_now(), 1, CallKind::send};
    ASSERT_TRUE(leases.lease(*this_thread(), 0, call, Range::of(memory_, sizeof memory_), Access::read,
                             transfer, Refusal::report));
    unrecorded_ = transfer.unrecorded;
    settled_ = unrecorded_ && transfer.region()->settled.load();
    leases.release(*this_thread(), transfer);
    ++uses_;
  }
  /// Whether the last use left no record; and whether for the reason that its region is settled.
  bool unrecorded() const { return unrecorded_; }
  bool settled() const { return settled_; }
  std::uint64_t uses() const { return uses_; }
  static Address address() { return reinterpret_cast<Address>(memory_); }
  static Range range() { return Range::of(memory_, sizeof memory_); }

  runlog::Log stop() {
    Engine::stop();
    std::vector<runlog::Log> logs;
    const Error unread = runlog::read_logs({options_.log}, logs);
    EXPECT_FALSE(unread) << unread.message;
    EXPECT_EQ(logs.size(), 1u);
    return logs.empty() ? runlog::Log{} : std::move(logs[0]);
  }

 private:
  alignas(4096) static inline char memory_[16 * kPage];
  const TemporaryDirectory directory_;
  Options options_;
  std::uint64_t uses_ = 0;
  bool unrecorded_ = false, settled_ = false;
};

std::uint64_t counted_in(const runlog::Log& log) {
  std::uint64_t uses = 0;
  for (const runlog::Event& event : log.events) uses += event.count;
  return uses;
}

// A region becomes settled live: its hits are counted in runs, and the log has all of them.
TEST(SettledRegions, ABufferInUseAgainAndAgainLeavesFewRecords) {
  LiveUses live(RetentionKind::helper);
  // However busy the machine is, the helper looks some time.
  while (!live.settled()) live.use();
  for (int i = 0; i < 1000; ++i) live.use();
  const runlog::Log log = live.stop();
  std::uint64_t logged = 0;
  for (const runlog::Event& event : log.events) logged += runlog::uses_of(event);
  EXPECT_EQ(log.live.counters.acquires, live.uses());
  EXPECT_LE(logged, live.uses());
  // A full ring may refuse a record, that of a whole run too.
  if (!log.all_events()) return;
  EXPECT_EQ(logged, live.uses());
  EXPECT_GT(counted_in(log), 0u);
}

TEST(SettledRegions, ObserveRecordsEachUse) {
  LiveUses live(RetentionKind::observe);
  for (int i = 0; i < 5000; ++i) live.use();
  const runlog::Log log = live.stop();
  EXPECT_EQ(log.live.counters.acquires, 5000u);
  EXPECT_EQ(log.events.size() + log.live.counters.records_dropped, 5000u);
  EXPECT_EQ(counted_in(log), 0u);
}

TEST(SettledRegions, ARegionAtRestIsSettledNoMore) {
  LiveUses live(RetentionKind::helper);
  while (!live.settled()) live.use();
  // The helper looks some time. Without this there would be nothing to wait for.
  const Region* const region = this_thread()->recent.of(live.address()).region;
  while (region->settled.load()) ::usleep(1000);
  const std::uint64_t before = live.uses();
  live.use();
  EXPECT_FALSE(live.settled());
  EXPECT_EQ(live.stop().live.counters.acquires, before + 1);
}

// Uses so far apart that the region could go and come back between them.
TEST(SettledRegions, WhereAllIsKeptAnyUseSettles) {
  LiveUses live(RetentionKind::helper, Log::kept, kAutoSize);
  for (int i = 0; i < 1000 && !live.settled(); ++i) {
    ::usleep(2000);
    live.use();
  }
  EXPECT_TRUE(live.settled());
  const std::uint64_t uses = live.uses();
  const runlog::Log log = live.stop();
  EXPECT_EQ(log.live.counters.acquires, uses);
  EXPECT_EQ(log.live.counters.registrations, 1u);
  EXPECT_GE(log.live.counters.kept_all_below_bytes, MinimumGain::kAutoLeast);
}

// A run of the process that comes after another begins with records.
TEST(SettledRegions, ARunOfTheProcessHasItsOwn) {
  for (int i = 0; i < 2; ++i) {
    LiveUses live(RetentionKind::helper);
    while (!live.settled()) live.use();
    const runlog::Log log = live.stop();
    EXPECT_EQ(log.live.counters.acquires, live.uses());
    EXPECT_GT(log.live.counters.registrations, 0u);
    if (!log.all_events()) continue;
    const auto count = [&](runlog::EventKind kind) {
      return std::ranges::count(log.events, kind, &runlog::Event::kind);
    };
    EXPECT_GT(count(runlog::EventKind::lease), 0);
    // More than one where the machine was busy, and the buffer idle meanwhile.
    EXPECT_EQ(static_cast<std::uint64_t>(count(runlog::EventKind::registration)),
              log.live.counters.registrations);
  }
}

// ---- hits without records ----

TEST(HitTrail, LeavePinnedWithoutALogLeavesNoRecordsOfHits) {
  LiveUses live(RetentionKind::leave_pinned, Log::none);
  live.use();
  EXPECT_FALSE(live.unrecorded());  // it is a miss
  const std::uint64_t begin = this_thread()->ring.size();
  for (int i = 0; i < 100; ++i) {
    live.use();
    ASSERT_TRUE(live.unrecorded());
  }
  EXPECT_LE(this_thread()->ring.size(), begin);
  EXPECT_EQ(Engine::running()->counters().all().hits, 100u);
  EXPECT_EQ(Engine::running()->counters().all().acquired_bytes, 101u * 16 * kPage);
}

TEST(HitTrail, LeavePinnedWithALogRecordsEachUse) {
  LiveUses live(RetentionKind::leave_pinned);
  for (int i = 0; i < 100; ++i) live.use();
  EXPECT_FALSE(live.unrecorded());
  std::uint64_t leases = 0;
  for (const runlog::Event& event : live.stop().events) leases += event.kind == runlog::EventKind::lease;
  EXPECT_EQ(leases, 100u);
}

// Else a forked child would lack its memory.
TEST(HitTrail, ALeaseWithoutARecordTakesItsRegionAlongDuringAFork) {
  LiveUses live(RetentionKind::leave_pinned, Log::none);
  live.use();
  LeasePath& leases = Engine::running()->lease_path();
  const Region* const region = this_thread()->recent.of(live.address()).region;
  for (const bool quickly : {false, true}) {
    live.use();
    const std::uint32_t generation = region->generation();
    Transfer transfer;
    ASSERT_EQ(leases.lease_quickly(*this_thread(), 0, live.range(), Access::read, transfer),
              LeasePath::Quick::done);
    ASSERT_TRUE(Engine::running()->retirement().fork_gate().close());
    if (quickly) {
      ASSERT_EQ(leases.release_quickly(transfer), LeasePath::Quick::rest);
      leases.end_release(this_thread(), transfer);
    } else {
      leases.release(*this_thread(), transfer);
    }
    EXPECT_FALSE((RegionRef{const_cast<Region*>(region), generation}.current() &&
                  region->word.load().state() == RegionState::registered));
    Engine::running()->retirement().fork_gate().open();
  }
}

TEST(HitTrail, LruLeavesTheTimeOfTheLastUse) {
  LiveUses live(RetentionKind::lru, Log::none);
  live.use();
  live.use();
  EXPECT_TRUE(live.unrecorded());
  const Region* const region = this_thread()->recent.of(live.address()).region;
  const Ticks before = region->last_use.load();
  while (ticks_now() == before) {
  }
  live.use();
  EXPECT_GT(region->last_use.load(), before);
}

}  // namespace
}  // namespace pinion
