// The run among the node's other processes: its share of a limit of the node, and whether it has a helper.
// It is needed only under a limit or policy of the node (node::Place::needed()), and where the run registers
// (any retention but observe). Owns the process's place in the node's table.
//
// Made and left by the engine; attend() is the helper's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lease/engine_options.h"
#include "node/place.h"
#include "registry/budget.h"

namespace pinion {

/// "; of the node's limit rank 1 (process 4711) holds 96M, ...": the other processes, the largest part first.
/// Empty without such a limit.
std::string others_text(const Budget& budget);

class NodeMembership {
 public:
  /// Joins the node's table, where that is needed; reports where it cannot.
  NodeMembership(const Options& options, pid_t process);

  /// The node's limit, or the part of it that a process outside of the table keeps to; 0: there is none.
  std::uint64_t limit() const { return limit_; }
  /// The process's share of the node's limit; null: there is none.
  Allowance* allowance() const { return place_ ? place_->allowance() : nullptr; }
  /// Returns the share; `budget` requests no more.
  void leave(Budget& budget) {
    if (!place_) return;
    budget.end_allowance();
    place_->leave();
  }

  /// Whether it is time to look at the others, after `transfers` in all.
  bool due(Time now, std::uint64_t transfers) const {
    return place_ && place_->due(now, transfers - attended_);
  }
  struct Need {
    std::uint64_t leave_pinned;  ///< bytes that leave-pinned would have registered
    std::uint64_t registered;
    std::uint32_t threads;  ///< that transfer
  };
  node::Place::Duty attend(Time now, std::uint64_t transfers, const Need& need, const node::CpuSet& allowed);

 private:
  const pid_t process_;
  std::unique_ptr<node::Place> place_;
  std::uint64_t limit_ = 0;
  std::uint64_t attended_ = 0;  ///< transfers up to the last attend()
};

}  // namespace pinion
