// Ranks that nothing can tell apart: of equal programs, on nodes with ranks of the same kinds, whose messages
// meet equal messages of ranks of the same kinds. What one of them does at a time, all of them do, so that
// one is simulated for all. Values.
#pragma once

#include <cstdint>
#include <vector>

namespace pinion::simulate {

struct Workload;
struct Settings;

/// The kind of each rank, from 0 on without gaps.
struct RankKinds {
  std::vector<std::uint32_t> of_rank;
  std::uint32_t count = 0;
};

/// With a disturbance every rank is of a kind of its own.
RankKinds kinds_of(const Workload& workload, const Settings& settings);

}  // namespace pinion::simulate
