// A whole job in virtual time: each rank a process (process.h).
//
// Ranks that are coupled (peers.h) are on one time line. The ranks of a log follow their own programs, as
// logs name no peers: their nodes are independent, and simulated side by side on the machine's cores. Ranks
// that nothing can tell apart (rank_kinds.h) are simulated once and counted as often as they occur; so are
// their nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/policy.h"
#include "placement/placement_options.h"
#include "runlog/analysis.h"
#include "runlog/timeline.h"
#include "simulate/process.h"
#include "simulate/rank_kinds.h"
#include "simulate/workload.h"

namespace pinion::simulate {

struct Settings {
  RetentionKind retention = RetentionKind::helper;
  std::string predictor = "adaptive";  ///< also `oracle` and `schedule` (simulate/schedule_predictor.h)
  unsigned window = 2;
  unsigned period_window = 4;
  std::optional<CostModel> nic;  ///< absent: each rank's own, as recorded
  std::uint64_t limit = 0;       ///< of one process; 0: none
  std::uint64_t node_limit = 0;  ///< of a node's processes together; 0: none
  std::uint64_t lru_bytes = 64 << 20;
  double time_budget = TimeBudget::Settings().share;
  MinimumGain::Settings minimum_gain;
  Hugepages hugepages = Hugepages::off;
  int cores = 0;                             ///< of a node; 0: enough for the helpers too
  PolicyKind policy = PolicyKind::sleeping;  ///< of helpers, where `cores` is given
  std::uint64_t policy_every = 100;          ///< acquires of a process
  node::TimeSlices time_slices;              ///< of helpers that share a core
  Duration poll = kMillisecond;
  std::optional<Duration> wake_latency;  ///< of the helper; absent: as recorded, or 60 us
  MakeDisturbance disturbance;           ///< of computations; empty: none
  std::uint64_t seed = 1;
  std::vector<std::string> profiles;  ///< that predictors begin with, by program; empty: with nothing
  bool keep_profiles = false;
  bool keep_timeline = false;
};

struct Result {
  runlog::RegisteredBytes registered;  ///< of the node with the highest peak
  runlog::Acquires acquires;           ///< of all ranks
  runlog::Cost cost;                   ///< mean over ranks
  runlog::Prediction prediction;
  runlog::TimeBudgetUse budget;            ///< mean over ranks
  std::uint64_t kept_all_below_bytes = 0;  ///< the minimum gain, where no rank reached it; 0: one did
  std::uint64_t registrations = 0, deregistrations = 0;
  double seconds = 0;  ///< of the node that ran longest
  /// The longest time that a rank takes to deregister what it holds after that.
  double seconds_at_end = 0;
  int ranks = 0, ranks_simulated = 0;
  int nodes = 0, nodes_simulated = 0;
  /// Events as a log would have them (leases, device calls and memory events): of all ranks, and of those
  /// simulated.
  std::uint64_t events = 0, events_simulated = 0;
  /// The profile that one of a program's ranks has learnt, by program; empty unless profiles are kept.
  std::vector<std::string> profiles;
  /// Registered bytes from the start of `registered`'s node on; empty unless it is kept.
  runlog::Timeline timeline;
};

/// Returns whether that name is a predictor here.
bool is_predictor(const std::string& name);

Result simulate(const Workload& workload, const Settings& settings);
/// With these kinds of ranks instead of kinds_of(): for tests.
Result simulate(const Workload& workload, const Settings& settings, const RankKinds& kinds);

}  // namespace pinion::simulate
