// The one bound on the time that a run loses to retention: over patterns, noises and numbers of cores, and
// over random programs that are made to lose time. Spending exceeds it by the work under way at most: one
// registration of the largest region, and a look of the helper. PINION_TEST_SCALE multiplies the random
// programs, of which sanitizers run a fifth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <tuple>

#include "papers/patterns/pattern.h"
#include "retention/costs.h"
#include "simulate/random.h"
#include "simulate/simulation.h"
#include "support/noise.h"
#include "support/sanitizers.h"

namespace pinion::simulate {
namespace {

const CostModel kNic{"connectx", 246, 16000, 66, 4320, {}};

/// A pattern whose messages all register, although its ranks share one node.
Workload on_one_node(const Pattern& pattern, std::uint64_t turns = 0) {
  Placement apart;
  EXPECT_FALSE(Placement::make(pattern.ranks, 1, "packed", apart));
  Workload workload = pattern_workload(pattern, turns, apart, {});
  EXPECT_FALSE(Placement::make(pattern.ranks, pattern.ranks, "packed", workload.placement));
  return workload;
}

std::size_t largest_region(const Workload& workload) {
  std::size_t pages = 0;
  for (const Program& program : workload.programs)
    for (const ThreadProgram& thread : program.threads)
      for (const auto* part : {&thread.before, &thread.turn, &thread.after})
        for (const Operation& operation : *part)
          if (operation.kind == Operation::Kind::acquire)
            pages = std::max(pages, operation.range.to_pages().pages());
  return pages;
}

/// The work under way when the bound is reached: the largest region goes and comes, and the helper takes the
/// records of one look. In seconds of the run.
struct UnderWay {
  double registration, look;
};
UnderWay under_way(const Workload& workload, const Settings& settings) {
  constexpr Duration kLook = 100 * kMicrosecond;  // it wakes, and learns from as many records as may wait
  const std::size_t pages = largest_region(workload);
  const double delay =
      settings.cores ? TimeBudget::delay_of(static_cast<double>(workload.ranks.size()), settings.cores) : 1;
  return {1e-9 * delay * static_cast<double>(kNic.register_cost(pages) + kNic.deregister_cost(pages)),
          1e-9 * delay * static_cast<double>(kLook)};
}

/// The part of the work under way that was spent beyond the bound.
double beyond_bound(const Result& result, const Workload& workload, const Settings& settings) {
  const auto [registration, look] = under_way(workload, settings);
  const double most = std::max(0.020, 0.01 * result.seconds);
  return (result.budget.spent() - most) / (registration + look);
}

// ---- patterns ----

using Case = std::tuple<const char*, const char*, int>;
class TimeBudgetHolds : public ::testing::TestWithParam<Case> {};

TEST_P(TimeBudgetHolds, ButForTheWorkUnderWay) {
  const auto& [name, noise, cores] = GetParam();
  Pattern pattern;
  ASSERT_FALSE(find_pattern(name, pattern));
  const Workload workload = on_one_node(pattern);
  Settings settings;
  settings.nic = kNic;
  settings.cores = cores;
  settings.disturbance = test::noise(noise);
  const Result result = simulate(workload, settings);
  EXPECT_LE(result.budget.allowed, std::max(0.020, 0.01 * result.seconds) + 1e-9);
  EXPECT_LE(beyond_bound(result, workload, settings), 1);
  EXPECT_EQ(result.budget.by_helper > 0, cores <= 4);
  EXPECT_NEAR(result.budget.spent(), result.cost.added(), 1e-9) << "everything that is lost counts";
}

INSTANTIATE_TEST_SUITE_P(All, TimeBudgetHolds,
                         ::testing::Combine(::testing::Values("bt:W:4", "cg:A:4", "mg:A:4", "ft:A:4"),
                                            ::testing::Values("none", "1%", "spikes", "irregular"),
                                            ::testing::Values(1, 2, 8)));

// ---- random programs that are made to lose time ----

/// Phases that change when a predictor has just learnt them: other buffers, order, call sites, lengths.
class LosingProgram {
 public:
  explicit LosingProgram(std::uint64_t seed) : random_(seed) {
    constexpr std::uint64_t kLargest[] = {256 << 10, 1 << 20, 16 << 20, 64 << 20};
    const std::uint64_t largest = kLargest[random_.below(4)];
    const std::size_t buffers = 1 + random_.below(8);
    for (std::size_t i = 0; i < buffers; ++i)
      sizes_.push_back(static_cast<std::uint64_t>(random_.between(0.1, 1) * static_cast<double>(largest)));
    for (Duration length = 0; length < random_.between(0.2, 6) * kSecond;) length += add_phase();
  }

  Pattern pattern(int ranks) const {
    Pattern pattern;
    pattern.ranks = ranks;
    pattern.write = [this](ProgramBuilder& builder, std::uint64_t) {
      std::vector<Address> buffers;
      for (const std::uint64_t size : sizes_) buffers.push_back(builder.array(size));
      for (const Use& use : uses_) {
        builder.pause(use.compute);
        if (use.unmaps) builder.unmap({buffers[use.buffer], buffers[use.buffer] + sizes_[use.buffer]});
        const int peer = use.meets && builder.ranks() > 1 ? builder.rank() ^ 1 : builder.ranks();
        const bool sends = peer == builder.ranks() || builder.rank() % 2 == 0;
        builder.blocking(sends ? CallKind::send : CallKind::receive, buffers[use.buffer], sizes_[use.buffer],
                         peer, use.site);
      }
    };
    return pattern;
  }

 private:
  struct Use {
    std::size_t buffer;
    std::uint64_t site;
    Duration compute;
    bool meets;   ///< a peer of the job; else one elsewhere
    bool unmaps;  ///< the memory before
  };

  Duration add_phase() {
    std::vector<Use> turn;
    const std::size_t uses = 1 + random_.below(6);
    const auto longest = static_cast<double>(kMillisecond) * std::exp2(random_.between(-3, 6));
    const bool meets = random_.below(2) == 0, unmaps = random_.below(8) == 0;
    for (std::size_t i = 0; i < uses; ++i)
      turn.push_back({random_.below(sizes_.size()), 1 + random_.below(3),
                      static_cast<Duration>(random_.between(0.05, 1) * longest), meets, unmaps});
    Duration length = 0;
    for (std::size_t turns = 2 + random_.below(random_.below(4) == 0 ? 60 : 6); turns > 0; --turns)
      for (const Use& use : turn) {
        uses_.push_back(use);
        length += use.compute + static_cast<Duration>(static_cast<double>(sizes_[use.buffer]) / 1.5);
      }
    return length;
  }

  Random random_;
  std::vector<std::uint64_t> sizes_;
  std::vector<Use> uses_;
};

struct Trial {
  Workload workload;
  Settings settings;
};

Trial trial_of(std::uint64_t seed) {
  Random random(seed_of(seed, 1));
  constexpr int kRanks[] = {1, 2, 4}, kCores[] = {1, 2, 8};
  constexpr const char* kNoises[] = {"none", "1%", "spikes", "warm-up", "regime", "drift", "irregular"};
  Trial trial;
  trial.workload = on_one_node(LosingProgram(seed).pattern(kRanks[random.below(3)]));
  trial.settings.nic = kNic;
  trial.settings.cores = kCores[random.below(3)];
  trial.settings.seed = seed;
  trial.settings.disturbance = test::noise(kNoises[random.below(7)]);
  return trial;
}

/// With room for one to four of the largest regions.
Trial limited_trial_of(std::uint64_t seed) {
  Trial trial = trial_of(seed);
  Random random(seed_of(seed, 2));
  trial.settings.limit = static_cast<std::uint64_t>(
      random.between(1, 4) * static_cast<double>(largest_region(trial.workload) * page_size()));
  return trial;
}

std::uint64_t programs() {
  constexpr std::uint64_t kPrograms = kSanitized ? 60 : 300;
  const char* const scale = std::getenv("PINION_TEST_SCALE");
  return kPrograms * std::max<std::uint64_t>(scale ? std::strtoull(scale, nullptr, 10) : 1, 1);
}

TEST(TimeBudgetOfLosingPrograms, HoldsButForTheWorkUnderWay) {
  double most = 0;
  std::uint64_t worst = 0;
  for (std::uint64_t seed = 1; seed <= programs(); ++seed) {
    const Trial trial = trial_of(seed);
    const Result result = simulate(trial.workload, trial.settings);
    const double beyond = beyond_bound(result, trial.workload, trial.settings);
    EXPECT_LE(beyond, 1) << "seed " << seed << ", " << trial.workload.ranks.size() << " ranks, "
                         << trial.settings.cores << " cores, " << result.seconds << " s, spent "
                         << 1e3 * result.budget.spent() << " ms";
    if (beyond > most) most = beyond, worst = seed;
  }
  RecordProperty("greatest_part_of_the_work_under_way", std::to_string(most));
  RecordProperty("of_seed", std::to_string(worst));
}

// These programs lost up to 48.5 of 27.9 ms: the helper woke for decisions that a used-up budget refuses, and
// leave-pinned's wake-ups for changed memory counted as losses.
TEST(TimeBudgetOfLosingPrograms, HoldsAtRest) {
  for (const std::uint64_t seed : {679, 2551, 3312, 5401, 7961}) {
    const Trial trial = trial_of(seed);
    const Result result = simulate(trial.workload, trial.settings);
    EXPECT_LE(beyond_bound(result, trial.workload, trial.settings), 1) << "seed " << seed;
  }
}

// Work of the helper in a thread's place raises the bound once it is used. Returns what was spent beyond
// that, as a part of the work under way.
double beyond_under_limit(std::uint64_t seed) {
  const Trial trial = limited_trial_of(seed);
  const Result result = simulate(trial.workload, trial.settings);
  const auto [registration, look] = under_way(trial.workload, trial.settings);
  return (result.budget.spent() - result.budget.allowed) / (registration + look);
}

TEST(TimeBudgetOfLosingPrograms, HoldsUnderALimit) {
  for (std::uint64_t seed = 1; seed <= programs(); ++seed)
    EXPECT_LE(beyond_under_limit(seed), 1) << "seed " << seed;
}

// These programs lost up to 1,638 of 291 ms: swaps in vain went on without a budget, or several of them were
// under way at a time. 455, 600 and 549 lost up to 99 of 37 ms on idle cores: copies of refused transfers
// counted, and after its reservation each wait for a region that the limit had evicted at rest (940).
TEST(TimeBudgetOfLosingPrograms, HoldsForSwapsInVainAndRefusedTransfers) {
  for (const std::uint64_t seed : {222, 706, 864, 1358, 642, 1229, 940, 1060, 455, 549, 600})
    EXPECT_LE(beyond_under_limit(seed), 1) << "seed " << seed;
}

}  // namespace
}  // namespace pinion::simulate
