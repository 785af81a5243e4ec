// Which node each rank runs on. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace pinion::simulate {

class Placement {
 public:
  /// `how`: "packed" (ranks in order, `ppn` on each node), "random:SEED" (a random order of them), or
  /// "nodes:6,5" (ranks in order, so many on each node, whatever `ppn` is).
  static Error make(int ranks, int ppn, const std::string& how, Placement& placement);
  /// `node_of`: for each rank, any number for its node.
  explicit Placement(std::vector<int> node_of = {});

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(ranks_of_.size()); }
  const std::vector<int>& ranks_of(int node) const { return ranks_of_[static_cast<std::size_t>(node)]; }
  bool same_node(int a, int b) const {
    return node_of_[static_cast<std::size_t>(a)] == node_of_[static_cast<std::size_t>(b)];
  }

 private:
  std::vector<int> node_of_;
  std::vector<std::vector<int>> ranks_of_;
};

}  // namespace pinion::simulate
