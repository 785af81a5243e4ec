// Whole jobs: logs replayed, nodes added up, equal ranks counted instead of simulated, bounds that agree with
// their strategies, and equal results for equal seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "papers/patterns/pattern.h"
#include "simulate/simulation.h"
#include "support/noise.h"
#include "support/rank_kinds.h"
#include "support/runlog_files.h"
#include "support/test_name.h"

namespace pinion::simulate {
namespace {

using test::all_apart;

const CostModel kNic{"test", 246, 16000, 62, 4000, {}};

Workload pattern(const std::string& text, int ppn = 1, std::uint64_t turns = 0) {
  Pattern found;
  Placement placement;
  EXPECT_FALSE(find_pattern(text, found));
  EXPECT_FALSE(Placement::make(found.ranks, ppn, "packed", placement));
  return pattern_workload(found, turns, placement, {});
}

Settings under(RetentionKind retention) {
  Settings settings;
  settings.retention = retention;
  settings.nic = kNic;
  return settings;
}

Result run(const Workload& workload, Settings settings) { return simulate(workload, settings); }

/// Its ranks wait for nobody.
Workload independent(const std::string& text) {
  Workload workload = pattern(text);
  workload.coupled = nullptr;
  return workload;
}

void expect_equal(const Result& a, const Result& b) {
  EXPECT_EQ(a.registered.peak, b.registered.peak);
  EXPECT_EQ(a.registered.mean, b.registered.mean);
  EXPECT_EQ(a.registered.oracle_peak, b.registered.oracle_peak);
  EXPECT_EQ(a.registered.oracle_mean, b.registered.oracle_mean);
  EXPECT_EQ(a.acquires.misses, b.acquires.misses);
  EXPECT_EQ(a.acquires.late, b.acquires.late);
  EXPECT_EQ(a.acquires.total, b.acquires.total);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.cost.added(), b.cost.added());
  EXPECT_EQ(a.prediction.within_0_5, b.prediction.within_0_5);
  EXPECT_EQ(a.events, b.events);
}

// ---- bounds ----

class Bounds : public ::testing::TestWithParam<const char*> {};

// The bytes of leave-pinned, computed under any strategy, equal those of a leave-pinned run.
TEST_P(Bounds, LeavePinnedIsWhatItHolds) {
  const Workload workload = pattern(GetParam(), 1, 10);
  const Result pinned = run(workload, under(RetentionKind::leave_pinned));
  const auto peak = static_cast<double>(pinned.registered.peak);
  EXPECT_NEAR(static_cast<double>(pinned.registered.leave_pinned_peak), peak, 0.02 * peak);
  EXPECT_NEAR(pinned.registered.leave_pinned_mean, pinned.registered.mean, 0.02 * pinned.registered.mean);
  for (const RetentionKind other : {RetentionKind::helper, RetentionKind::on_demand}) {
    const Result result = run(workload, under(other));
    EXPECT_EQ(result.registered.leave_pinned_peak, pinned.registered.leave_pinned_peak);
    EXPECT_NEAR(result.registered.leave_pinned_mean, pinned.registered.mean, 0.02 * pinned.registered.mean);
  }
}

// A strategy below the oracle bound is late. On-demand holds just the bound, less the time of its
// registrations, which is the program's: there the bound itself is the strategy.
TEST_P(Bounds, OracleIsBelowEveryStrategyThatRegisters) {
  const Workload workload = pattern(GetParam(), 1, 10);
  for (const RetentionKind kind :
       {RetentionKind::helper, RetentionKind::on_demand, RetentionKind::leave_pinned}) {
    const Result result = run(workload, under(kind));
    EXPECT_LE(result.registered.oracle_peak, result.registered.peak) << to_string(kind);
    EXPECT_LE(result.registered.oracle_mean, 1.001 * result.registered.mean) << to_string(kind);
  }
  const Result on_demand = run(workload, under(RetentionKind::on_demand));
  const auto peak = static_cast<double>(on_demand.registered.peak);
  EXPECT_NEAR(static_cast<double>(on_demand.registered.oracle_peak), peak, 0.02 * peak);
}

INSTANTIATE_TEST_SUITE_P(Patterns, Bounds,
                         ::testing::Values("bt:A:4", "sp:A:4", "lu:A:4", "cg:A:4", "ft:A:4", "mg:A:8",
                                           "is:A:4", "reuse:4M:2", "no-reuse:4M:2", "nested:1M:2"),
                         [](const auto& info) { return test::test_name(info.param); });

// With free deregistration on-demand holds the oracle bound, to the byte.
TEST(Bounds, OnDemandWithFreeDeregistrationIsTheOracle) {
  Settings settings = under(RetentionKind::on_demand);
  settings.nic->deregister_ns_base = settings.nic->deregister_ns_per_page = 0;
  for (const char* name : {"ft:A:4", "reuse:4M:2", "cg:A:4"}) {
    const Result result = run(pattern(name, 1, 10), settings);
    EXPECT_EQ(result.registered.oracle_peak, result.registered.peak) << name;
    EXPECT_NEAR(result.registered.oracle_mean, result.registered.mean, 0.02 * result.registered.mean) << name;
  }
}

// ---- ranks that do the same ----

TEST(Classes, AreSimulatedOnceAndCounted) {
  const Workload workload = pattern("cg:S:16", 1, 2);
  const Result result = run(workload, under(RetentionKind::helper));
  EXPECT_EQ(result.ranks, 16);
  EXPECT_LT(result.ranks_simulated, 16);
  // Every rank on its own: all figures are the same.
  expect_equal(result, simulate(workload, under(RetentionKind::helper), all_apart(workload)));
}

// Four equal ranks on a node: one process that counts four times, or four processes.
TEST(Classes, NodeOfEqualRanksIsTheSumOfThem) {
  Workload workload = independent("reuse:1M:8");
  workload.ranks.assign(4, {0});
  workload.placement = Placement({0, 0, 0, 0});
  const Settings settings = under(RetentionKind::helper);
  const Result once = run(workload, settings);
  const Result four = simulate(workload, settings, all_apart(workload));
  EXPECT_EQ(once.ranks_simulated, 1);
  EXPECT_EQ(four.ranks_simulated, 4);
  EXPECT_EQ(once.registered.peak, four.registered.peak);
  EXPECT_NEAR(once.registered.mean, four.registered.mean, 1e-6 * once.registered.mean);
  EXPECT_EQ(once.registered.oracle_peak, four.registered.oracle_peak);
  EXPECT_EQ(once.acquires.misses, four.acquires.misses);
  EXPECT_EQ(once.events, four.events);
  EXPECT_EQ(4 * once.events_simulated, four.events_simulated);
}

// ---- policies for helpers ----

/// Two nodes of six ranks, each with a partner on the other one.
Workload crowd() {
  std::vector<int> node_of;
  for (int rank = 0; rank < 12; ++rank) node_of.push_back(rank % 2);
  Pattern found;
  EXPECT_FALSE(find_pattern("reuse:1M:12", found));
  return pattern_workload(found, 30, Placement(node_of), {});
}
Result crowded(PolicyKind policy, int cores, std::uint64_t seed = 1) {
  Settings settings = under(RetentionKind::helper);
  settings.policy = policy;
  settings.policy_every = 4;
  settings.cores = cores;
  settings.seed = seed;
  return run(crowd(), settings);
}
constexpr PolicyKind kThePapers[] = {PolicyKind::none_if_busy, PolicyKind::aggressive,
                                     PolicyKind::conservative};

TEST(Policies, WithoutAnIdleCoreAllStaysPinned) {
  const Result pinned = run(crowd(), under(RetentionKind::leave_pinned));
  EXPECT_LT(crowded(PolicyKind::sleeping, 6).registered.mean, pinned.registered.mean);
  for (const PolicyKind policy : kThePapers) {
    const Result result = crowded(policy, 6);
    EXPECT_EQ(result.registered.peak, pinned.registered.peak);
    EXPECT_EQ(result.registered.mean, pinned.registered.mean);
    EXPECT_EQ(result.cost.helper_cpu, 0);
  }
}

TEST(Policies, WithACoreForEachHelperTheyAreAlike) {
  const Result sleeping = crowded(PolicyKind::sleeping, 12);
  for (const PolicyKind policy : kThePapers) expect_equal(crowded(policy, 12), sleeping);
}

// Four ranks on two cores lose four times a helper's work: 1 % keeps most of it registered, 7 % little.
TEST(Policies, ACrowdedNodeKeepsToItsBoundAndHoldsLittleForMore) {
  for (const char* name : {"sp:A:4", "bt:A:4"}) {
    Workload workload = pattern(name);  // as on nodes of their own: all messages register
    EXPECT_FALSE(Placement::make(4, 4, "packed", workload.placement));
    Settings settings = under(RetentionKind::helper);
    settings.cores = 2;
    const Result at_default = run(workload, settings);
    EXPECT_LE(at_default.budget.spent(), at_default.budget.allowed) << name;
    EXPECT_LE(at_default.budget.allowed, 0.01 * at_default.seconds) << name;
    settings.time_budget = 0.07;
    settings.predictor = "oracle";
    const Result perfect = run(workload, settings);
    settings.predictor = "adaptive";
    const Result learnt = run(workload, settings);
    for (const Result& result : {perfect, learnt}) {
      EXPECT_LE(result.registered.mean, 0.12 * result.registered.leave_pinned_mean) << name;
      EXPECT_LE(result.budget.spent(), result.budget.allowed) << name;
    }
    EXPECT_LE(learnt.registered.mean, 1.25 * perfect.registered.mean) << name;
  }
}

// Two of six have a helper, and save two sixths.
TEST(Policies, ConservativeSavesItsShare) {
  const double none = crowded(PolicyKind::conservative, 6).registered.mean;
  const double all = crowded(PolicyKind::conservative, 12).registered.mean;
  const Result two = crowded(PolicyKind::conservative, 8);
  EXPECT_NEAR(none - two.registered.mean, (none - all) / 3, 0.05 * none);
  expect_equal(two, crowded(PolicyKind::conservative, 8));
  EXPECT_GT(two.ranks_simulated, crowded(PolicyKind::conservative, 12).ranks_simulated) << "they differ now";
}

// Intervals between uses shorter than a turn leave nothing to be let go; longer ones do.
TEST(Policies, AggressiveWaitsForItsTurn) {
  Settings settings = under(RetentionKind::helper);
  settings.policy = PolicyKind::aggressive;
  settings.cores = 8;
  const Workload workload = crowd();
  settings.time_slices.slice = 100 * kMicrosecond;
  const double brief = run(workload, settings).registered.mean;
  settings.time_slices.slice = 10 * kSecond;
  const double endless = run(workload, settings).registered.mean;
  EXPECT_LT(brief, 0.9 * endless);
}

TEST(NodeLimit, HoldsWhateverTheStrategy) {
  const Workload workload = pattern("ft:A:8", 4, 6);
  const std::uint64_t needed = run(workload, under(RetentionKind::leave_pinned)).registered.peak;
  for (const RetentionKind retention :
       {RetentionKind::helper, RetentionKind::leave_pinned, RetentionKind::lru, RetentionKind::on_demand}) {
    for (const char* name : {"none", "1%"}) {
      Settings settings = under(retention);
      settings.disturbance = test::noise(name);
      const Result free = run(workload, settings);
      settings.node_limit = needed / 2;
      const Result limited = run(workload, settings);
      EXPECT_LE(limited.registered.peak, needed / 2) << to_string(retention);
      EXPECT_GT(limited.registered.peak, needed / 4) << to_string(retention);
      EXPECT_EQ(limited.acquires.total, free.acquires.total);
      EXPECT_GT(limited.ranks_simulated, !settings.disturbance ? free.ranks_simulated : 0);
      expect_equal(run(workload, settings), limited);
    }
  }
}

TEST(NodeLimit, ChangesNothingWhereAllFits) {
  const Workload workload = pattern("ft:A:8", 4, 6);
  Settings settings = under(RetentionKind::leave_pinned);
  const Result free = run(workload, settings);
  settings.node_limit = 2 * free.registered.peak;
  expect_equal(run(workload, settings), free);
}

// More processes than meet in a room: the others keep to an equal part each.
TEST(NodeLimit, HoldsForAnyNumberOfProcesses) {
  const Workload workload = pattern("reuse:64K:520", 520, 2);
  Settings settings = under(RetentionKind::leave_pinned);
  settings.node_limit = 520 * 64 << 10;
  EXPECT_LE(run(workload, settings).registered.peak, settings.node_limit * 520 / 512);
}

// The short peaks of two ranks that begin at different times do not coincide.
TEST(Nodes, AreSummedOnOneTimeLine) {
  Workload workload = independent("reuse:1M:2");
  workload.ranks.assign(2, {0});
  workload.placement = Placement({0, 0});
  const Settings settings = under(RetentionKind::on_demand);
  const Result together = run(workload, settings);
  workload.ranks[1].starts = 100 * kMillisecond;
  const Result apart = run(workload, settings);
  EXPECT_EQ(together.registered.peak, std::size_t{2} << 20);
  EXPECT_EQ(apart.registered.peak, std::size_t{1} << 20);
  EXPECT_EQ(apart.registered.oracle_peak, std::size_t{1} << 20);
  EXPECT_NEAR(apart.seconds, together.seconds + 0.1, 1e-9);
}

// ---- determinism ----

class NoiseTest : public ::testing::TestWithParam<const char*> {};

TEST_P(NoiseTest, EqualSeedsGiveEqualRuns) {
  const Workload workload = pattern("bt:A:9", 3, 20);
  Settings settings = under(RetentionKind::helper);
  settings.disturbance = test::noise(GetParam());
  const Result one = run(workload, settings), same = run(workload, settings);
  expect_equal(one, same);
  EXPECT_GT(one.acquires.total, 0u);
  if (settings.disturbance) {
    EXPECT_EQ(one.ranks_simulated, 9);
  }
  settings.seed = 2;
  const Result other = run(workload, settings);
  if (GetParam() == std::string("1%") || GetParam() == std::string("irregular")) {
    EXPECT_NE(one.seconds, other.seconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, NoiseTest,
                         ::testing::Values("none", "1%", "spikes", "warm-up", "regime", "drift", "irregular"),
                         [](const auto& info) { return "model" + std::to_string(info.index); });

TEST(Noise, StaysWithinItsModel) {
  const auto one = test::noise("1%")(1), irregular = test::noise("irregular")(1);
  const auto drift = test::noise("drift")(1), spikes = test::noise("spikes")(1);
  Duration least = kSecond, most = 0, spiked = 0;
  for (int i = 0; i < 10000; ++i) {
    const Duration d = one->of(1000000, 0.5);
    least = std::min(least, d), most = std::max(most, d);
    ASSERT_GE(irregular->of(1000000, 0.5), 500000);
    ASSERT_LE(irregular->of(1000000, 0.5), 2000000);
    spiked += spikes->of(1000000, 0.5) - 1000000;
  }
  EXPECT_GE(least, 990000);
  EXPECT_LE(most, 1010000);
  EXPECT_LT(least, 991000);
  EXPECT_GT(most, 1009000);
  EXPECT_EQ(drift->of(1000000, 1), 1500000);
  // 10 s of computation: 100 spikes of 1.25 ms.
  EXPECT_NEAR(static_cast<double>(spiked), 100 * 1.25e6, 40 * 1.25e6);
  MakeDisturbance none;
  EXPECT_TRUE(find_noise("2", none));
  EXPECT_TRUE(find_noise("-1%", none));
  EXPECT_TRUE(find_noise("", none));
}

// ---- oracle ----

TEST(Predictors, OracleIsNeverWrongUnderNoise) {
  Settings settings = under(RetentionKind::helper);
  settings.disturbance = test::noise("1%");
  settings.predictor = "oracle";
  for (const char* name : {"bt:A:4", "ft:A:4", "irregular:1M:1"}) {
    const Result oracle = run(pattern(name, 1, 30), settings);
    EXPECT_EQ(oracle.prediction.within_0_5, 1) << name;
    // One full reuse ahead, it does not know how long the thread will wait for its own registrations.
    EXPECT_GT(oracle.prediction.at_release_within_0_5, 0.9) << name;
  }
}

// ---- logs ----

namespace rl = runlog;

rl::Log log_of(std::vector<rl::Event> events, Time start, Time end, int rank = 0, const char* host = "node") {
  rl::Log log{};
  log.header.start_ns = start;
  log.header.page_bytes = static_cast<std::uint32_t>(page_size());
  log.header.rank = rank;
  log.header.cores = 16;
  std::strcpy(log.header.host, host);
  log.live.last_ns = end;
  log.live.complete = 1;
  log.events = std::move(events);
  return log;
}

constexpr Time kUs = kMicrosecond;
constexpr std::uint64_t kMemory = std::uint64_t{1} << 32;

/// Its earlier wait for registration is not the program's time.
TEST(Replay, WaitsAreTakenOut) {
  rl::Event first = rl::lease(100 * kUs, 150 * kUs, kMemory, 65536, 7);
  first.wait_ns = 20 * 1000;
  first.page_order = 9;
  rl::Event second = rl::lease(180 * kUs, 190 * kUs, kMemory, 65536, 8);
  const Program program = program_of(log_of({first, second}, 0, 250 * kUs));
  ASSERT_EQ(program.threads.size(), 1u);
  const ThreadProgram& thread = program.threads[0];
  ASSERT_EQ(thread.before.size(), 4u);
  EXPECT_EQ(thread.before[0].compute, 100 * kUs);
  EXPECT_EQ(thread.before[0].site, 7u);
  EXPECT_EQ(thread.before[0].page_order, 9u);
  EXPECT_EQ(thread.before[2].page_order, 0u);
  EXPECT_EQ(thread.before[1].transfer, 30 * kUs);
  EXPECT_EQ(thread.before[2].compute, 30 * kUs);
  EXPECT_EQ(thread.before[3].transfer, 10 * kUs);
  EXPECT_EQ(thread.after[0].compute, 60 * kUs);
}

// The two ranges of an exchange begin with the call; the second is waited for after the first.
TEST(Replay, WaitsOfOneCallFollowEachOther) {
  rl::Event send = rl::lease(100 * kUs, 150 * kUs, kMemory, 65536),
            receive = rl::lease(100 * kUs, 150 * kUs, kMemory + (1 << 20), 65536);
  send.wait_ns = 20 * 1000;
  receive.wait_ns = 10 * 1000;
  const Program program = program_of(log_of({send, receive}, 0, 200 * kUs));
  const auto& ops = program.threads[0].before;
  EXPECT_EQ(ops[0].compute, 100 * kUs);
  EXPECT_EQ(ops[1].compute, 0);
  EXPECT_EQ(ops[2].transfer, 20 * kUs);
  EXPECT_EQ(program.threads[0].after[0].compute, 50 * kUs);
}

// Under on-demand, each release also waits for its deregistration.
TEST(Replay, DeregistrationsOfTheThreadAreTakenOut) {
  const auto out = rl::event(rl::EventKind::deregistration, 150 * kUs, 160 * kUs, kMemory, 65536);
  auto by_helper = rl::event(rl::EventKind::deregistration, 165 * kUs, 170 * kUs, kMemory, 65536);
  by_helper.flags = rl::kByHelper;
  const Program program = program_of(log_of({rl::lease(100 * kUs, 150 * kUs, kMemory, 65536), out, by_helper,
                                             rl::lease(180 * kUs, 190 * kUs, kMemory, 65536)},
                                            0, 200 * kUs));
  EXPECT_EQ(program.threads[0].before[2].compute, 20 * kUs);
}

TEST(Replay, OverlappingTransfersThreadsAndMemoryEvents) {
  rl::Event a = rl::lease(10 * kUs, 40 * kUs, kMemory, 65536),
            b = rl::lease(20 * kUs, 30 * kUs, kMemory + (1 << 20), 65536);
  rl::Event other = rl::lease(15 * kUs, 16 * kUs, kMemory + (2 << 20), 65536);
  other.thread = 3;
  const auto gone = rl::event(rl::EventKind::memory_event, 50 * kUs, 50 * kUs, kMemory, 65536);
  const Program program = program_of(log_of({a, b, other, gone}, 0, 60 * kUs));
  ASSERT_EQ(program.threads.size(), 2u);
  const auto& ops = program.threads[0].before;
  ASSERT_EQ(ops.size(), 5u);
  using Kind = Operation::Kind;
  EXPECT_EQ(ops[0].kind, Kind::acquire);
  EXPECT_EQ(ops[1].kind, Kind::acquire);
  EXPECT_NE(ops[0].slot, ops[1].slot);
  EXPECT_EQ(ops[2].kind, Kind::release);
  EXPECT_EQ(ops[2].slot, ops[1].slot);
  EXPECT_EQ(ops[4].kind, Kind::memory_event);
  EXPECT_EQ(program.threads[1].before.size(), 2u);
}

// Impossible in a program, but possible in a log that passed the reader: waits of one thread at the same
// time, transfers of nothing, events before the run. One buffer in two domains is registered twice, and gone
// from both.
TEST(Replay, DomainsAreKeptApart) {
  rl::Event first = rl::lease(100 * kUs, 110 * kUs, kMemory, 65536, 7), second = first, again = first;
  second.domain = again.domain = 1;
  again.begin_ns = 400 * kUs, again.end_ns = 410 * kUs;
  const rl::Event gone = rl::event(rl::EventKind::memory_event, 300 * kUs, 300 * kUs, kMemory, 65536);
  Workload workload;
  ASSERT_FALSE(log_workload({log_of({first, second, gone, again}, 0, 500 * kUs)}, {}, workload));
  const Result pinned = run(workload, under(RetentionKind::leave_pinned));
  EXPECT_EQ(pinned.acquires.misses, 3u);
  EXPECT_EQ(pinned.registered.peak, 2u * 65536);
  EXPECT_EQ(pinned.registered.oracle_peak, 2u * 65536);
  EXPECT_EQ(pinned.registered.leave_pinned_peak, 2u * 65536);
  EXPECT_EQ(pinned.deregistrations, 3u);
}

TEST(Replay, ARunOfUsesIsReplayedAsItsLeases) {
  rl::Event run = rl::lease(100 * kUs, 200 * kUs, kMemory, 65536, 7);
  run.kind = rl::EventKind::uses;
  run.count = 5;
  run.leased_ns = 50 * 1000;
  const Program program = program_of(log_of({run}, 0, 250 * kUs));
  const auto& ops = program.threads[0].before;
  ASSERT_EQ(ops.size(), 10u);
  // At 100, 122.5, 145, ...: 10 us each, with 12.5 us in between.
  for (std::size_t i = 0; i < 10; i += 2) {
    EXPECT_EQ(ops[i].compute, i == 0 ? 100 * kUs : 12'500) << i;
    EXPECT_EQ(ops[i].site, 7u);
    EXPECT_EQ(ops[i + 1].transfer, 10 * kUs) << i;
  }
  EXPECT_EQ(program.threads[0].after[0].compute, 50 * kUs);

  // A damaged log may count four thousand million of them.
  run.count = UINT32_MAX;
  Workload workload;
  ASSERT_FALSE(log_workload({log_of({run, run}, 0, 250 * kUs)}, {}, workload));
  EXPECT_EQ(workload.programs[0].threads[0].before.size(), 2u << 20);
}

TEST(Replay, ImpossibleLogsAreHarmless) {
  rl::Event a = rl::lease(100 * kUs, 110 * kUs, kMemory, 65536), b = a,
            nothing = rl::lease(0, kUs, kMemory, 0);
  a.wait_ns = b.wait_ns = 10 * 1000;
  b.begin_ns += kUs;
  std::vector<rl::Event> events = {nothing, a, b, b, a};
  for (int i = 0; i < 100; ++i) events.push_back(i % 3 ? a : b);
  events.push_back(rl::event(rl::EventKind::memory_event, 0, 0, 0, std::uint64_t{1} << 57));
  Workload workload;
  ASSERT_FALSE(log_workload({log_of(events, 50 * kUs, 60 * kUs)}, {}, workload));
  const Result result = run(workload, under(RetentionKind::helper));
  EXPECT_EQ(result.acquires.total, 104u);
  EXPECT_EQ(result.acquires.hits + result.acquires.waits + result.acquires.misses, 104u);
}

std::vector<rl::Event> loop(int turns, Duration period, std::uint64_t address) {
  std::vector<rl::Event> events;
  for (int i = 1; i <= turns; ++i)
    events.push_back(rl::lease(i * period, i * period + kMillisecond, address, 1 << 20, 1));
  return events;
}

// ---- a log's figures of its machine ----

TEST(Lateness, IsKeptToAnEighthOfItsValue) {
  using rl::Lateness;
  for (const std::int64_t late : {0, 1, 7, 8, 9, 100, 4095, 4096, 1000000, 2000000000}) {
    const std::int64_t kept = Lateness::decode(Lateness::encode(late));
    EXPECT_LE(kept, late);
    EXPECT_GT(kept, late - late / 8 - 1) << late;
  }
  EXPECT_EQ(Lateness::encode(-1), 0);
  EXPECT_EQ(Lateness::encode(INT64_MAX), UINT8_MAX);
  for (int code = 0; code <= UINT8_MAX; ++code)
    EXPECT_EQ(Lateness::encode(Lateness::decode(static_cast<std::uint8_t>(code))), code);
}

// However many there are, those that are kept are evenly spread over the run, and in order.
TEST(Lateness, LongRunsKeepOneOfMany) {
  rl::Lateness lateness{};
  for (std::uint64_t n = 0; n < 10 * rl::Lateness::kMost; ++n) {
    lateness.add(static_cast<std::int64_t>(n));
    ASSERT_LE(lateness.kept, rl::Lateness::kMost);
    ASSERT_EQ(lateness.kept, (n + lateness.stride) / lateness.stride);
  }
  EXPECT_EQ(lateness.stride, 16u);
  EXPECT_EQ(lateness.wakeups, 10 * rl::Lateness::kMost);
  for (std::uint32_t i = 0; i < lateness.kept; ++i)
    ASSERT_EQ(lateness.codes[i], rl::Lateness::encode(16 * static_cast<std::int64_t>(i)));
}

TEST(WakeLatency, FollowsTheRecordedOrder) {
  rl::Lateness recorded{};
  for (const Duration late : {64, 128, 32}) recorded.add(late);
  WakeLatency latency(recorded);
  for (const Duration late : {64, 128, 32, 64, 128}) EXPECT_EQ(latency.next(), late);
  recorded.stride = 2;  // each stands for two
  latency = WakeLatency(recorded);
  for (const Duration late : {64, 64, 128, 128, 32, 32, 64}) EXPECT_EQ(latency.next(), late);
  EXPECT_EQ(WakeLatency(rl::Lateness{}).next(), 60 * kUs);
  EXPECT_EQ(WakeLatency(7).next(), 7);
}

TEST(CallTimes, StrayAsThoseRecorded) {
  CallTimes times;
  times.observe(Actor::helper, true, 300, 100);
  times.observe(Actor::helper, true, 50, 100);
  for (const Duration expected : {3000, 500, 3000})
    EXPECT_EQ(times.next(Actor::helper, true, 1000), expected);
  EXPECT_EQ(times.next(Actor::helper, false, 1000), 1000);
  EXPECT_EQ(times.next(Actor::application, true, 1000), 1000);
  times.observe(Actor::helper, false, INT64_MAX, 0);
  EXPECT_EQ(times.next(Actor::helper, false, kSecond), kLongestCall);
}

/// One transfer of 10 pages, whose registration took twice the time of the fit: 2 * (10 * 100 + 1000) ns.
rl::Log fitted_log(const char* retention) {
  const std::uint64_t bytes = 10 * page_size();
  rl::Event lease = rl::lease(100 * kUs, 150 * kUs, kMemory, bytes);
  lease.wait_ns = 4000;
  rl::Log log = log_of({rl::event(rl::EventKind::registration, 100 * kUs, 104 * kUs, kMemory, bytes), lease},
                       0, kMillisecond);
  std::strcpy(log.header.retention, retention);
  log.header.cores = log.header.local_ranks = 1;
  log.live.domains[0].fit_register_a_ns = 100;
  log.live.domains[0].fit_register_b_ns = 1000;
  return log;
}

// The largest values that the reader lets pass: times of years and ranges of the whole address space.
TEST(Replay, ExtremesAreHarmless) {
  constexpr Time kTenYears = Time{10} * 365 * 86400 * kSecond;
  constexpr std::uint64_t kAll = std::uint64_t{1} << 57;
  rl::Log log = log_of({}, 0, kTenYears);
  for (int i = 0; i < 40; ++i) {
    const Time begin = i % 4 * (kTenYears / 4);
    rl::Event lease =
        rl::lease(begin, kTenYears, 0, i % 2 ? kAll : 1, 1, i % 3 ? rl::Outcome::miss : rl::Outcome::bounced);
    lease.wait_ns = UINT64_MAX;
    log.events.push_back(lease);
    log.events.push_back(rl::event(rl::EventKind::registration, begin, kTenYears, 0, i % 2 ? kAll : 1));
    log.events.push_back(rl::event(rl::EventKind::deregistration, begin, kTenYears, 0, kAll));
  }
  log.header.memcpy_bytes_per_ns = 1e-300;
  rl::Counters& counters = log.live.counters;
  rl::DomainState& domain = log.live.domains[0];
  domain.fit_register_a_ns = domain.fit_register_b_ns = 1e308;
  domain.fit_deregister_a_ns = domain.fit_deregister_b_ns = 1e308;
  for (int i = 0; i < 10; ++i) counters.lateness.add(INT64_MAX);
  counters.bookkeeping_ns = counters.bookkeeping_samples = counters.helper_cpu_ns = UINT64_MAX;
  Workload workload;
  ASSERT_FALSE(log_workload({log}, {}, workload));
  for (const RetentionKind kind : {RetentionKind::observe, RetentionKind::on_demand,
                                   RetentionKind::leave_pinned, RetentionKind::lru, RetentionKind::helper}) {
    Settings settings = under(kind);
    settings.nic.reset();
    settings.cores = 1;
    for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{1} << 20}) {
      settings.limit = limit;
      EXPECT_EQ(run(workload, settings).acquires.total, 40u);
    }
  }
}

TEST(Replay, WhatPreemptionAddedToACallIsLeftOut) {
  rl::Log log = fitted_log("helper");
  rl::Event& registration = log.events.front();
  ASSERT_EQ(registration.kind, rl::EventKind::registration);
  registration.wait_ns = 2 * kUs;
  Workload workload;
  ASSERT_FALSE(log_workload({log}, {}, workload));
  EXPECT_EQ(workload.recorded[0].call_times.next(Actor::application, true, 2000), 2000);
}

TEST(Replay, CallsTakeAsLongAsRecordedUnlessANicIsGiven) {
  Workload workload;
  ASSERT_FALSE(log_workload({fitted_log("leave-pinned")}, {}, workload));
  Settings settings = under(RetentionKind::leave_pinned);
  EXPECT_DOUBLE_EQ(run(workload, settings).cost.on_demand, 1e-9 * (16000 + 10 * 246));
  settings.nic.reset();
  EXPECT_DOUBLE_EQ(run(workload, settings).cost.on_demand, 4e-6);
}

// The simulated process has one NIC: that of the domain that registered most.
TEST(Replay, TheFitIsOfTheBusiestDomain) {
  rl::Log log = fitted_log("leave-pinned");
  log.live.domains[0].registrations = 1;
  log.live.domains[2].registrations = 7;
  log.live.domains[2].fit_register_b_ns = 5000;
  Workload workload;
  ASSERT_FALSE(log_workload({log}, {}, workload));
  EXPECT_EQ(workload.recorded[0].nic.register_cost(10), 5000);
}

// Each rank has its own fit: one of two has a fit that differs from the other's.
TEST(Replay, EachRankHasItsOwnFit) {
  rl::Log other = fitted_log("leave-pinned");
  other.header.rank = 1;
  other.live.domains[0].fit_register_b_ns = 3000;  // whose registration then took just the time of its fit
  other.live.domains[0].fit_register_a_ns = 100;
  Workload workload;
  ASSERT_FALSE(log_workload({fitted_log("leave-pinned"), other}, {}, workload));
  EXPECT_EQ(workload.recorded[0].nic.register_cost(10), 2000);
  EXPECT_EQ(workload.recorded[1].nic.register_cost(10), 4000);
  Settings settings = under(RetentionKind::leave_pinned);
  settings.nic.reset();
  EXPECT_DOUBLE_EQ(run(workload, settings).cost.on_demand, 4e-6);  // mean over ranks
}

// No core is idle. The recorded times contain a helper that ran so; they exclude one that was off, or had a
// core of its own.
TEST(Replay, HelpersOfTheRecordedRunAreInItsTimes) {
  const auto seconds = [](const char* retention, int cores) {
    rl::Log log = fitted_log(retention);
    log.header.cores = cores;
    log.events = loop(50, 10 * kMillisecond, kMemory);
    log.live.last_ns = 51 * 10 * kMillisecond;
    Workload workload;
    EXPECT_FALSE(log_workload({log}, {}, workload));
    Settings settings = under(RetentionKind::helper);
    settings.cores = 1;
    const Result result = run(workload, settings);
    EXPECT_GT(result.cost.helper_charged, 0);
    return result.seconds - result.cost.on_demand;
  };
  EXPECT_NEAR(seconds("helper", 1), 0.51, 1e-6);
  EXPECT_GT(seconds("helper", 2), 0.512);
  EXPECT_GT(seconds("on-demand", 1), 0.512);
}

// Ranks wait for one that a helper delays; with four ranks on two cores, twice as much.
TEST(Replay, WithoutAnIdleCoreTheRunLosesTheWaitsOfPeersToo) {
  const auto charged = [](int ranks) {
    rl::Log log = fitted_log("on-demand");
    log.events = loop(50, 10 * kMillisecond, kMemory);
    log.live.last_ns = 51 * 10 * kMillisecond;
    std::vector<rl::Log> logs;
    for (int rank = 0; rank < ranks; ++rank) {
      log.header.rank = rank;
      log.header.process = static_cast<std::uint32_t>(rank) + 1;
      logs.push_back(log);
    }
    Workload workload;
    EXPECT_FALSE(log_workload(std::move(logs), {}, workload));
    Settings settings = under(RetentionKind::helper);
    settings.cores = 2;
    const Result result = run(workload, settings);
    EXPECT_GT(result.cost.helper_cpu, 0);
    EXPECT_EQ(result.budget.by_helper, result.cost.helper_charged);
    return result.cost.helper_charged / result.cost.helper_cpu;
  };
  EXPECT_EQ(charged(1), 0) << "a core is idle";
  EXPECT_NEAR(charged(2), 2, 0.1);
  EXPECT_NEAR(charged(4), 4, 0.2);
}

TEST(Replay, SimulatesWhatWasRecorded) {
  const Time end = 101 * 10 * kMillisecond;
  Workload workload;
  ASSERT_FALSE(log_workload({log_of(loop(100, 10 * kMillisecond, kMemory), 0, end)}, {}, workload));
  const Result pinned = run(workload, under(RetentionKind::leave_pinned));
  EXPECT_EQ(pinned.acquires.total, 100u);
  EXPECT_EQ(pinned.acquires.misses, 1u);
  EXPECT_EQ(pinned.registered.peak, 1u << 20);
  // Its one registration is time that the recorded run did not have.
  EXPECT_NEAR(pinned.seconds, 1.01 + 1e-9 * (256 * 246 + 16000), 1e-8);
  const Result helper = run(workload, under(RetentionKind::helper));
  EXPECT_LE(helper.acquires.late, 5u);
  EXPECT_LT(helper.registered.mean, 0.3 * pinned.registered.mean);
}

TEST(Replay, TilesToMoreRanksWithSkew) {
  std::vector<rl::Log> logs = {
      log_of(loop(10, 10 * kMillisecond, kMemory), 0, kSecond, 0, "a"),
      log_of(loop(10, 10 * kMillisecond, kMemory), 5 * kMillisecond, kSecond, 1, "a")};
  Tiling tiling;
  tiling.ranks = 5;
  tiling.skew = 20 * kMillisecond;
  Workload workload;
  ASSERT_FALSE(log_workload(logs, tiling, workload));
  ASSERT_EQ(workload.ranks.size(), 5u);
  EXPECT_EQ(workload.placement.nodes(), 3);  // copies of the node
  EXPECT_EQ(workload.ranks[1].starts, 5 * kMillisecond);
  EXPECT_EQ(workload.ranks[4].starts, 40 * kMillisecond);
  EXPECT_EQ(workload.ranks[4].program, 0u);
  const Result result = run(workload, under(RetentionKind::leave_pinned));
  EXPECT_EQ(result.ranks, 5);
  EXPECT_EQ(result.acquires.total, 50u);
  EXPECT_EQ(result.registered.peak, 2u << 20);
  tiling.ppn = 5;
  Workload one_node;
  ASSERT_FALSE(log_workload(logs, tiling, one_node));
  EXPECT_EQ(one_node.placement.nodes(), 1);
  EXPECT_EQ(run(one_node, under(RetentionKind::leave_pinned)).registered.peak, 5u << 20);
}

TEST(Replay, OtherPageSizesAreRefused) {
  rl::Log log = log_of({}, 0, kSecond);
  log.header.page_bytes *= 2;
  Workload workload;
  EXPECT_TRUE(log_workload({log}, {}, workload));
}

TEST(Replay, EmptyLogIsARunWithoutTransfers) {
  Workload workload;
  ASSERT_FALSE(log_workload({log_of({}, 0, kSecond)}, {}, workload));
  const Result result = run(workload, under(RetentionKind::helper));
  EXPECT_EQ(result.acquires.total, 0u);
  EXPECT_EQ(result.seconds, 1);
  EXPECT_EQ(result.registered.peak, 0u);
}

}  // namespace
}  // namespace pinion::simulate
