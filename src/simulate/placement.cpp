#include "simulate/placement.h"

#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "simulate/random.h"

namespace pinion::simulate {

Placement::Placement(std::vector<int> node_of) : node_of_(std::move(node_of)) {
  std::map<int, int> numbers;
  for (int rank = 0; rank < ranks(); ++rank) {
    int& node = node_of_[static_cast<std::size_t>(rank)];
    node = numbers.try_emplace(node, static_cast<int>(numbers.size())).first->second;
    ranks_of_.resize(numbers.size());
    ranks_of_[static_cast<std::size_t>(node)].push_back(rank);
  }
}

namespace {

Error make_by_nodes(int ranks, const std::string& how, Placement& placement) {
  std::vector<int> node_of;
  const char *at = how.data() + how.find(':'), *const end = how.data() + how.size();
  for (int node = 0; at != end; ++node) {
    int here = 0;
    const auto [stop, failed] = std::from_chars(at + 1, end, here);
    const bool is_valid = failed == std::errc{} && (stop == end || *stop == ',') && here > 0;
    if (!is_valid || here > ranks - static_cast<int>(node_of.size())) break;
    node_of.insert(node_of.end(), static_cast<std::size_t>(here), node);
    at = stop;
  }
  if (at != end || static_cast<int>(node_of.size()) != ranks)
    return Error::make(EINVAL, "placement: '%s' needs the ranks of each node, %d together, as in nodes:6,5",
                       how.c_str(), ranks);
  placement = Placement(std::move(node_of));
  return {};
}

}  // namespace

Error Placement::make(int ranks, int ppn, const std::string& how, Placement& placement) {
  if (ppn < 1) return Error::make(EINVAL, "ppn: at least one rank has to run on a node");
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  if (how.rfind("random:", 0) == 0) {
    std::uint64_t seed = 0;
    const char* const end = how.data() + how.size();
    const auto [stop, failed] = std::from_chars(how.data() + 7, end, seed);
    if (failed != std::errc{} || stop != end)
      return Error::make(EINVAL, "placement: '%s' needs a whole number as seed, as in random:1", how.c_str());
    Random random(seed);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  } else if (how.rfind("nodes:", 0) == 0) {
    return make_by_nodes(ranks, how, placement);
  } else if (how != "packed") {
    return Error::make(EINVAL, "placement: '%s' is not one of: packed, random:SEED, nodes:N,N,...",
                       how.c_str());
  }
  std::vector<int> node_of(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    node_of[static_cast<std::size_t>(order[i])] = static_cast<int>(i) / ppn;
  placement = Placement(std::move(node_of));
  return {};
}

}  // namespace pinion::simulate
