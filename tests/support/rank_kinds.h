// Shared by the tests of simulated jobs: kinds of ranks. Values.
#pragma once

#include "simulate/rank_kinds.h"
#include "simulate/workload.h"

namespace pinion::test {

/// Each rank is of a kind of its own.
inline simulate::RankKinds all_apart(const simulate::Workload& workload) {
  simulate::RankKinds kinds;
  kinds.count = static_cast<std::uint32_t>(workload.ranks.size());
  for (std::uint32_t rank = 0; rank < kinds.count; ++rank) kinds.of_rank.push_back(rank);
  return kinds;
}

}  // namespace pinion::test
