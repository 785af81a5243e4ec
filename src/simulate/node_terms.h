// The terms that the processes of a simulated node have of each other: its helpers' idle cores, and its limit
// on registered bytes. Each is dealt out by the code that does so in a run. One thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "node/node_table.h"
#include "node/policy.h"
#include "simulate/process.h"
#include "simulate/simulation.h"

namespace pinion::simulate {

/// The node's helpers under its policy. Each process looks at the others after so many of its own acquires,
/// as in the engine.
class Helpers {
 public:
  /// Makes the helpers of a node with so many ranks.
  Helpers(const Settings& settings, std::uint64_t ranks)
      : settings_(settings),
        idle_cores_(settings.cores ? std::max(0, settings.cores - static_cast<int>(ranks))
                                   : static_cast<int>(ranks)),
        crowded_(static_cast<std::uint64_t>(idle_cores_) < ranks) {}

  /// Returns whether ranks that do the same may have other terms than each other.
  bool tell_ranks_apart() const {
    return crowded_ && idle_cores_ > 0 &&
           (settings_.policy == PolicyKind::aggressive || settings_.policy == PolicyKind::conservative);
  }
  void add(std::size_t process);
  /// Returns when a process's helper runs that would run at a time; empty: at that time.
  std::function<Time(Time)> turn_after(std::size_t process, std::size_t processes) const;
  void attend(std::size_t number, Process& process);

 private:
  const Settings& settings_;
  const int idle_cores_;
  const bool crowded_;
  std::vector<node::Standing> standings_;
  std::vector<std::uint64_t> look_at_;
};

/// The node's limit, and its processes' own.
class NodeLimit {
 public:
  NodeLimit(const Settings& settings, std::uint64_t ranks)
      : limit_(traits_of(settings.retention).registers ? settings.node_limit : 0),
        process_limit_(settings.limit ? settings.limit : UINT64_MAX),
        ranks_(std::max<std::uint64_t>(ranks, 1)) {}

  bool given() const { return limit_ > 0; }
  /// Returns the next process's membership and its own limit.
  std::pair<std::unique_ptr<node::NodeTable>, std::uint64_t> enter();

 private:
  const std::uint64_t limit_, process_limit_, ranks_;
  const std::shared_ptr<node::SharedTable> file_ = limit_ ? node::NodeTable::simulated() : nullptr;
  std::uint64_t entered_ = 0;
};

/// Returns whether ranks that do the same may have different terms on a node with so many ranks.
bool tells_ranks_apart(const Settings& settings, std::uint64_t ranks);

/// The time budget of a process there.
TimeBudget::Settings budget_of(const Settings& settings, std::uint64_t ranks);

}  // namespace pinion::simulate
