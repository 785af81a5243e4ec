// A process's looks at the others of its node's table: their times, and the consequences for its part of the
// node's limit. It receives the time as `now`, so that the engine and the simulator run the same code. One
// object a member; one thread (the helper's, or the simulator's).
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "node/node_table.h"

namespace pinion::node {

/// The duties of a process for the limit that all share.
struct Sharing {
  std::uint64_t hold_at_most = UINT64_MAX;  ///< registered bytes: others need theirs
  std::uint64_t at_hand = 0;                ///< of its share, bytes worth keeping beyond its registered ones
  bool binds = false;                       ///< its fair share is less than its need
};
/// The duties of process `self`, which has so many bytes registered.
Sharing sharing_of(const std::vector<NodeTable::Member>& members, std::size_t self, std::uint64_t limit,
                   std::uint64_t registered);

class Attendance {
 public:
  /// `every`: operations from one look at the others to the next.
  Attendance(NodeTable& table, std::uint64_t every) : table_(table), every_(every) {}

  /// Whether it is time to look, `operations` after the last time.
  bool due(Time now, std::uint64_t operations) const;
  /// Posts to the others, and reads their posts.
  std::vector<NodeTable::Member> attend(Time now, const NodeTable::Post& post, std::size_t& self);

 private:
  NodeTable& table_;
  const std::uint64_t every_;
  Time attended_ = 0;
  Time forgave_ = 0;        ///< when an unrepeated shortage was last to be forgotten
  bool was_short_ = false;  ///< at that time
  std::uint64_t shortages_seen_ = 0;
};

}  // namespace pinion::node
