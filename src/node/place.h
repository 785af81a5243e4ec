// The process's place among those of its job on this node: its duties by the node's limit and by the policy
// for helpers. Owns its membership in the node's table (node_table.h). It joins only for a limit of the
// node, or for a policy that depends on the others.
//
// Made and destroyed by the engine; due() and attend() are the helper's; the allowance is the budget's.
#pragma once

#include <memory>
#include <optional>

#include "node/attendance.h"
#include "node/cores.h"
#include "node/node_options.h"
#include "node/node_share.h"
#include "node/node_table.h"
#include "node/policy.h"

namespace pinion::node {

class Place {
 public:
  struct Settings {
    PolicyKind policy = PolicyKind::sleeping;
    std::uint64_t limit = 0;    ///< of the node, bytes; 0: none
    std::uint64_t every = 100;  ///< operations from one look at the others to the next
    std::string directory = "/dev/shm";
    std::uint64_t job = 0;
    std::uint64_t identity = 0;
  };
  /// The process's duties.
  struct Duty {
    bool helper = true;
    Duration turn = 0;  ///< how long the helper may wait for its core
    CpuSet run_on;      ///< where; empty: anywhere
    Sharing sharing;    ///< of the node's limit
  };

  /// False: the process uses neither the node's file nor its processes.
  static bool needed(const Settings& settings) {
    return settings.limit > 0 || settings.policy != PolicyKind::sleeping;
  }

  /// An error undoes everything; the place is null.
  static Error enter(const Settings& settings, std::unique_ptr<Place>& place);
  /// Leaves after the allowance has ended.
  void leave() { table_.leave(); }

  /// The process's share of the node's limit; null: there is none.
  Allowance* allowance() { return table_.limit() ? &share_ : nullptr; }
  std::uint64_t limit() const { return table_.limit(); }

  /// Whether it is time to look at the others, `operations` after the last time.
  bool due(Time now, std::uint64_t operations) const { return attendance_.due(now, operations); }
  /// Posts to the others, and derives the duties from their posts. `need`: the bytes that the process would
  /// have registered under leave-pinned. `threads`: that transfer. `allowed` and `bound`: CPUs of its
  /// cpuset, and of its program.
  Duty attend(Time now, std::uint64_t need, std::uint64_t registered, std::uint32_t threads,
              const CpuSet& allowed, const CpuSet& bound);

 private:
  explicit Place(const Settings& settings);

  const Settings settings_;
  const Cores cores_;
  const std::uint64_t tie_;
  std::optional<TimeSlices> slices_;  ///< of the helper, once it has attended
  NodeTable table_;
  NodeShare share_{table_};
  Attendance attendance_{table_, settings_.every};
};

}  // namespace pinion::node
