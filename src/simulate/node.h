// The processes of one node on one time line. One thread; nodes share nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulate/simulation.h"

namespace pinion::simulate {

/// Ranks of a node that do the same.
struct Member {
  std::uint32_t program;
  Duration starts;
  std::uint64_t seed;   ///< of its noise
  std::uint64_t ranks;  ///< how many

  auto operator<=>(const Member&) const = default;
};

/// Sums over a node's ranks; each simulated process counts for `ranks` of them.
struct NodeResult {
  runlog::RegisteredBytes registered;
  runlog::Counters counters{};
  std::uint64_t kept_all_below_bytes = UINT64_MAX;  ///< the least of a rank
  Duration length = 0;  ///< from the start of the first rank to the end of the last
  std::uint64_t events = 0, events_simulated = 0;
  int ranks_simulated = 0;
  std::map<std::uint32_t, std::string> profiles;  ///< by program, if they are kept
  runlog::Timeline timeline;                      ///< registered bytes from 0 on, if it is kept
};

NodeResult simulate_node(const Workload& workload, const Settings& settings,
                         const std::vector<Member>& members);

}  // namespace pinion::simulate
