#include "simulate/rank_kinds.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "simulate/node_terms.h"
#include "simulate/peers.h"
#include "simulate/random.h"
#include "simulate/simulation.h"

namespace pinion::simulate {

namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) { return seed_of(hash, value); }

/// Divides kinds until no two ranks of one kind differ in what they meet.
class Division {
 public:
  explicit Division(const Workload& workload) : workload_(workload), marks_(workload.ranks.size()) {}

  /// Begins with these kinds.
  RankKinds divide(RankKinds kinds) {
    while (true) {
      RankKinds finer = divided(kinds);
      if (finer.count == kinds.count) return kinds;
      kinds = std::move(finer);
    }
  }

 private:
  RankKinds divided(const RankKinds& kinds) {
    mark_nodes(kinds);
    if (workload_.coupled) workload_.coupled->mark(kinds, marks_);
    RankKinds finer;
    std::unordered_map<std::uint64_t, std::uint32_t> numbers;
    for (const std::uint64_t mark : marks_)
      finer.of_rank.push_back(
          numbers.try_emplace(mark, static_cast<std::uint32_t>(numbers.size())).first->second);
    finer.count = static_cast<std::uint32_t>(numbers.size());
    return finer;
  }

  void mark_nodes(const RankKinds& kinds) {
    for (int node = 0; node < workload_.placement.nodes(); ++node) {
      std::vector<std::uint32_t> there;
      for (const int rank : workload_.placement.ranks_of(node))
        there.push_back(kinds.of_rank[static_cast<std::size_t>(rank)]);
      std::sort(there.begin(), there.end());
      std::uint64_t mark = 0;
      for (const std::uint32_t kind : there) mark = mixed(mark, kind);
      for (const int rank : workload_.placement.ranks_of(node))
        marks_[static_cast<std::size_t>(rank)] = mixed(mark, kinds.of_rank[static_cast<std::size_t>(rank)]);
    }
  }

  const Workload& workload_;
  std::vector<std::uint64_t> marks_;
};

}  // namespace

RankKinds kinds_of(const Workload& workload, const Settings& settings) {
  const bool disturbed = static_cast<bool>(settings.disturbance);
  RankKinds kinds;
  std::map<std::tuple<std::uint32_t, Duration, std::size_t>, std::uint32_t> numbers;
  std::vector<std::size_t> places(workload.ranks.size());
  for (int node = 0; node < workload.placement.nodes(); ++node) {
    const std::vector<int>& there = workload.placement.ranks_of(node);
    if (!tells_ranks_apart(settings, there.size())) continue;
    for (std::size_t i = 0; i < there.size(); ++i) places[static_cast<std::size_t>(there[i])] = i;
  }
  for (std::size_t rank = 0; rank < workload.ranks.size(); ++rank) {
    const Workload::Rank& of = workload.ranks[rank];
    const std::tuple apart{of.program, of.starts, disturbed ? rank : places[rank]};
    kinds.of_rank.push_back(
        numbers.try_emplace(apart, static_cast<std::uint32_t>(numbers.size())).first->second);
  }
  kinds.count = static_cast<std::uint32_t>(numbers.size());
  if (kinds.count == kinds.of_rank.size()) return kinds;
  return Division(workload).divide(std::move(kinds));
}

}  // namespace pinion::simulate
