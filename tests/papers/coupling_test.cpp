// Ranks that wait for each other: whose messages match, whom a late rank delays and by how much, and that
// ranks which nothing can tell apart need not be simulated twice.
#include "papers/patterns/coupling.h"

#include <gtest/gtest.h>

#include <string>

#include "device/model/cost_model.h"
#include "papers/patterns/pattern.h"
#include "simulate/rank_kinds.h"
#include "simulate/simulation.h"
#include "support/noise.h"
#include "support/rank_kinds.h"
#include "support/test_name.h"

namespace pinion::simulate {
namespace {

using test::all_apart;

const CostModel kNic{"test", 246, 16000, 62, 4000, {}};
const CostModel kFree{"free", 0, 0, 0, 0, {}};

Workload workload_of(Pattern pattern, int ppn = 1, std::uint64_t turns = 0) {
  Placement placement;
  EXPECT_FALSE(Placement::make(pattern.ranks, ppn, "packed", placement));
  return pattern_workload(pattern, turns, placement, {});
}

Workload workload_of(const std::string& text, int ppn = 1, std::uint64_t turns = 0) {
  Pattern pattern;
  const Error error = find_pattern(text, pattern);
  EXPECT_FALSE(error) << error.message;
  return workload_of(pattern, ppn, turns);
}

Settings under(RetentionKind retention) {
  Settings settings;
  settings.retention = retention;
  settings.nic = kNic;
  return settings;
}

/// Gives `rank` a NIC of its own, and the others one whose calls take no time.
void give_nic(Workload& workload, std::size_t rank, const CostModel& nic) {
  Workload::Rank& of = workload.ranks[rank];
  workload.programs.push_back(workload.programs[of.program]);
  of.program = static_cast<std::uint32_t>(workload.programs.size() - 1);
  workload.recorded.resize(workload.programs.size());
  for (Recorded& recorded : workload.recorded) recorded.nic = kFree;
  workload.recorded.back().nic = nic;
}

// ---- matches ----

TEST(Coupling, MessagesOfAllPatternsMatch) {
  for (const char* name :
       {"bt:S:9",        "sp:S:16",        "lu:S:8",     "lu:S:16",     "cg:S:8",       "cg:S:16",
        "ft:S:4",        "ft:S:2x4",       "mg:S:8",     "mg:S:2",      "is:S:8",       "reuse:1M:4",
        "no-reuse:1M:2", "loop3:1M:2",     "loop5:8K:2", "nested:1M:2", "warm-up:1M:2", "regime-change:1M:2",
        "drift:1M:2",    "irregular:1M:4", "reuse:1M:3"})
    EXPECT_EQ(dynamic_cast<const Coupling&>(*workload_of(name).coupled).unmatched(), 0u) << name;
}

TEST(Coupling, MatchesMessagesOfAPairInTheirOrder) {
  using Kind = RankMessage::Kind;
  RankMessages sender, receiver;
  sender.parts[1] = {{Kind::sends, 1}, {Kind::sends_at_once, 1}, {Kind::sends, 1}};
  receiver.parts[1] = {{Kind::receives, 0}, {Kind::receives, 0}};
  const Coupling coupling({sender, receiver});
  EXPECT_EQ(coupling.unmatched(), 1u);
  const auto &sent = coupling.needed(1, 0), &received = coupling.needed(1, 1);
  EXPECT_EQ(sent[0].rank, 1u);
  EXPECT_EQ(sent[0].number, 0u);
  EXPECT_EQ(sent[1].rank, Coupling::kNobody) << "it waits for nobody";
  EXPECT_EQ(sent[2].rank, Coupling::kNobody) << "its match is missing";
  EXPECT_EQ(received[1].rank, 0u);
  EXPECT_EQ(received[1].number, 1u);
}

// ---- a late rank ----

/// The time that rank 0's slow registrations add to the run of all.
double added_to_the_run(Workload workload, int late_rank, RetentionKind retention) {
  Settings settings = under(retention);
  settings.nic.reset();
  give_nic(workload, static_cast<std::size_t>(late_rank), kFree);
  const double in_time = simulate(workload, settings).seconds;
  workload.recorded.back().nic = kNic;
  return simulate(workload, settings).seconds - in_time;
}

// 65536 keys on four ranks: each all-to-all leases 16 pages of two buffers.
TEST(LateRank, DelaysAllInACollectiveByItsRegistrations) {
  const double buffer = 1e-9 * (16000 + 16 * 246);
  for (const int late : {0, 3}) {
    EXPECT_NEAR(added_to_the_run(workload_of("is:S:4"), late, RetentionKind::leave_pinned), 2 * buffer, 1e-9);
  }
  // On demand it is late in every collective: before it by its registrations, and after it.
  const double gone = 1e-9 * (4000 + 16 * 62);
  EXPECT_NEAR(added_to_the_run(workload_of("is:S:4"), 1, RetentionKind::on_demand), 11 * 2 * (buffer + gone),
              1e-9);
}

// Each of the others has waited as long as the late rank.
TEST(LateRank, DelaysItsPartnerInAMessage) {
  const double buffer = 1e-9 * (16000 + 256 * 246);
  EXPECT_NEAR(added_to_the_run(workload_of("reuse:1M:2"), 0, RetentionKind::leave_pinned), 3 * buffer, 1e-9);
  EXPECT_NEAR(added_to_the_run(workload_of("reuse:1M:2"), 1, RetentionKind::leave_pinned), 3 * buffer, 1e-9);
}

/// Rank 0 sends `bytes` to rank 1, which is `late` by then; then rank 0 computes for 10 ms.
Workload one_message(std::uint64_t bytes, Duration late) {
  Pattern pattern;
  pattern.ranks = 2;
  pattern.write = [=](ProgramBuilder& builder, std::uint64_t) {
    const Address buffer = builder.array(bytes);
    builder.pause(builder.rank() == 1 ? late : 0);
    builder.blocking(builder.rank() == 0 ? CallKind::send : CallKind::receive, buffer, bytes,
                     1 - builder.rank(), 1);
    builder.pause(builder.rank() == 0 ? 10 * kMillisecond : 0);
  };
  return workload_of(pattern);
}

TEST(LateRank, DelaysASenderButOfAShortMessage) {
  Settings settings = under(RetentionKind::leave_pinned);
  settings.nic = kFree;
  const auto seconds = [&](std::uint64_t bytes, Duration late) {
    return simulate(one_message(bytes, late), settings).seconds;
  };
  EXPECT_NEAR(seconds(64 << 10, 4 * kMillisecond), seconds(64 << 10, 0) + 0.004, 1e-9);
  EXPECT_EQ(seconds(8 << 10, 4 * kMillisecond), seconds(8 << 10, 0)) << "it is sent at once";
}

// A wait that a rank has for its peers anyway hides its own registrations.
TEST(LateRank, HidesWhatTheOthersRegisterMeanwhile) {
  Workload workload = workload_of("reuse:1M:2");
  Settings settings = under(RetentionKind::leave_pinned);
  const double both = simulate(workload, settings).seconds;
  settings.nic = kFree;
  const double none = simulate(workload, settings).seconds;
  EXPECT_NEAR(both - none, 3e-9 * (16000 + 256 * 246), 1e-9) << "both register at the same time";
}

// ---- noise of all ranks adds up ----

TEST(Noise, OfTheLatestRankCountsInEachCollective) {
  constexpr int kTurns = 200;
  const auto length = [&](int ranks, bool coupled) {
    Pattern pattern;
    pattern.ranks = ranks;
    pattern.turns = kTurns;
    pattern.write = [](ProgramBuilder& builder, std::uint64_t turns) {
      const Address send = builder.array(1 << 20), receive = builder.array(1 << 20);
      std::vector<int> all;
      for (int rank = 0; rank < builder.ranks(); ++rank) all.push_back(rank);
      builder.begin_turn();
      builder.pause(10 * kMillisecond);
      builder.alltoall(send, receive, 1024, all, 1);
      builder.end_turn(turns);
    };
    Workload workload = workload_of(pattern, 1, kTurns);
    if (!coupled) workload.coupled = nullptr;
    Settings settings = under(RetentionKind::leave_pinned);
    settings.nic = kFree;
    const double quiet = simulate(workload, settings).seconds;
    settings.disturbance = test::noise("50%");
    return simulate(workload, settings).seconds - quiet;
  };
  // The latest of n ranks, evenly within half of 10 ms either way: 5 ms * (n - 1) / (n + 1) a turn.
  for (const int ranks : {2, 8}) {
    const double expected = kTurns * 0.005 * (ranks - 1) / (ranks + 1);
    EXPECT_NEAR(length(ranks, true), expected, 0.15 * kTurns * 0.005) << ranks;
  }
  EXPECT_LT(length(8, false), 0.15 * kTurns * 0.005) << "apart, the noise of each rank averages out";
}

// ---- ranks that nothing can tell apart ----

class AlikeRanks : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(AlikeRanks, HaveTheFiguresOfAllRanksApart) {
  const auto& [name, ppn] = GetParam();
  const Workload workload = workload_of(name, ppn, 12);
  for (const RetentionKind retention :
       {RetentionKind::helper, RetentionKind::on_demand, RetentionKind::leave_pinned}) {
    for (const int cores : {0, 1, 8}) {
      Settings settings = under(retention);
      settings.cores = cores;
      const Result once = simulate(workload, settings);
      const Result all = simulate(workload, settings, all_apart(workload));
      EXPECT_EQ(all.ranks_simulated, all.ranks);
      EXPECT_EQ(once.ranks, all.ranks);
      EXPECT_EQ(once.seconds, all.seconds);
      EXPECT_EQ(once.seconds_at_end, all.seconds_at_end);
      EXPECT_EQ(once.registered.peak, all.registered.peak);
      EXPECT_NEAR(once.registered.mean, all.registered.mean, 1e-9 * all.registered.mean);
      EXPECT_EQ(once.registered.oracle_peak, all.registered.oracle_peak);
      EXPECT_EQ(once.acquires.misses, all.acquires.misses);
      EXPECT_EQ(once.acquires.late, all.acquires.late);
      EXPECT_NEAR(once.cost.added(), all.cost.added(), 1e-9);
      EXPECT_EQ(once.registrations, all.registrations);
      EXPECT_EQ(once.events, all.events);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, AlikeRanks,
                         ::testing::Values(std::pair{"bt:A:4", 1}, std::pair{"sp:W:16", 4},
                                           std::pair{"cg:A:16", 1}, std::pair{"cg:A:8", 2},
                                           std::pair{"ft:A:2x4", 1}, std::pair{"ft:A:8", 4},
                                           std::pair{"mg:A:8", 1}, std::pair{"is:A:8", 2},
                                           std::pair{"lu:W:4", 1}, std::pair{"reuse:1M:6", 1}),
                         [](const auto& info) { return test::test_name(info.param.first); });

TEST(RankKinds, DivideRanksByWhomTheyMeet) {
  const Settings settings = under(RetentionKind::helper);
  EXPECT_EQ(kinds_of(workload_of("ft:A:8"), settings).count, 1u);
  EXPECT_EQ(kinds_of(workload_of("bt:A:4"), settings).count, 1u);
  EXPECT_EQ(kinds_of(workload_of("lu:A:4"), settings).count, 4u) << "each has neighbours of its own";
  EXPECT_EQ(kinds_of(workload_of("reuse:1M:6"), settings).count, 2u);
  EXPECT_EQ(kinds_of(workload_of("reuse:1M:5"), settings).count, 3u) << "the last one has no partner";
  Settings noisy = settings;
  noisy.disturbance = test::noise("1%");
  EXPECT_EQ(kinds_of(workload_of("ft:A:8"), noisy).count, 8u);
}

// A rank whose partner is late is not like one whose partner is in time.
TEST(RankKinds, TellThePartnerOfALateRankApart) {
  Workload workload = workload_of("reuse:1M:6");
  give_nic(workload, 2, kNic);
  const Settings settings = under(RetentionKind::helper);
  const RankKinds kinds = kinds_of(workload, settings);
  EXPECT_EQ(kinds.count, 4u);
  EXPECT_EQ(kinds.of_rank[1], kinds.of_rank[5]);
  EXPECT_NE(kinds.of_rank[1], kinds.of_rank[3]);
}

// ---- the end ----

TEST(End, DeregistersWhatIsLeft) {
  const Workload workload = workload_of("reuse:1M:2");
  const double buffer = 1e-9 * (4000 + 256 * 62);
  EXPECT_NEAR(simulate(workload, under(RetentionKind::leave_pinned)).seconds_at_end, 3 * buffer, 1e-12);
  EXPECT_EQ(simulate(workload, under(RetentionKind::on_demand)).seconds_at_end, 0);
}

}  // namespace
}  // namespace pinion::simulate
