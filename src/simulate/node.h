// Nodes of a job on one time line: coupled ranks wait for each other, those of a log follow their own times.
// One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulate/rank_kinds.h"
#include "simulate/simulation.h"

namespace pinion::simulate {

/// A rank that is simulated for all of its kind on its node.
struct Member {
  std::uint32_t rank;
  std::uint64_t ranks;  ///< how many
};
using Node = std::vector<Member>;

/// Sums over a node's ranks; each simulated process counts for `ranks` of them.
struct NodeResult {
  runlog::RegisteredBytes registered;
  runlog::Counters counters{};
  std::uint64_t kept_all_below_bytes = UINT64_MAX;  ///< the least of a rank
  Duration length = 0;  ///< from the start of the first rank to the end of the last
  Duration at_end = 0;  ///< the longest time of a rank's deregistrations after that
  std::uint64_t events = 0, events_simulated = 0;
  int ranks_simulated = 0;
  std::map<std::uint32_t, std::string> profiles;  ///< by program, if they are kept
  runlog::Timeline timeline;                      ///< registered bytes from 0 on, if it is kept
};

/// Ranks that wait for each other have to be among `nodes`, one of each kind.
std::vector<NodeResult> simulate_nodes(const Workload& workload, const Settings& settings,
                                       const RankKinds& kinds, const std::vector<Node>& nodes);

}  // namespace pinion::simulate
