// The process's place among those of its job on this node: what follows for it from the node's limit and from
// the policy for helpers. Owns its membership of the node's room (room.h), which it enters only where there
// is a limit of the node to keep, or a policy that asks who else is there.
//
// Made and destroyed by the engine; due() and attend() are the helper's; the allowance is the budget's.
#pragma once

#include <memory>
#include <optional>

#include "node/attendance.h"
#include "node/cores.h"
#include "node/node_share.h"
#include "node/options.h"
#include "node/policy.h"
#include "node/room.h"

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
  /// What follows for the process.
  struct Duty {
    bool helper = true;
    Duration turn = 0;  ///< what the helper may have to wait for its core
    CpuSet run_on;      ///< where; empty: anywhere
    Sharing sharing;    ///< of the node's limit
  };

  /// Needs nothing of the node: no file, no look at others.
  static bool needed(const Settings& settings) {
    return settings.limit > 0 || settings.policy != PolicyKind::sleeping;
  }

  /// On an error there is no place, and nothing is left behind.
  static Error enter(const Settings& settings, std::unique_ptr<Place>& place);
  /// After the allowance has ended.
  void leave() { room_.leave(); }

  /// The process's share of the node's limit; null: there is none.
  Allowance* allowance() { return room_.limit() ? &share_ : nullptr; }
  std::uint64_t limit() const { return room_.limit(); }

  /// Whether it is time to look at the others, `operations` after the last time.
  bool due(Time now, std::uint64_t operations) const { return attendance_.due(now, operations); }
  /// Tells the others, and says what follows from what they tell. `need`: what the process would have
  /// registered if it let nothing go. `threads`: that transfer. `allowed` and `bound`: CPUs of its cpuset,
  /// and of its program.
  Duty attend(Time now, std::uint64_t need, std::uint64_t registered, std::uint32_t threads,
              const CpuSet& allowed, const CpuSet& bound);

 private:
  explicit Place(const Settings& settings);

  const Settings settings_;
  const Cores cores_;
  const std::uint64_t tie_;
  std::optional<TimeSlices> slices_;  ///< of the helper, once it has attended
  NodeRoom room_;
  NodeShare share_{room_};
  Attendance attendance_{room_, settings_.every};
};

}  // namespace pinion::node
