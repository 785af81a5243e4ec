// A process's looks at the others of its node's room: when, and what follows for its part of the node's
// limit. It knows time only as the `now` it is given, so that the engine and the simulator run the same. Of
// one member; one thread (the helper's, or the simulator's).
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "node/room.h"

namespace pinion::node {

/// What each process does for the limit that all share.
struct Sharing {
  std::uint64_t hold_at_most = UINT64_MAX;  ///< registered bytes: others need theirs
  std::uint64_t at_hand = 0;  ///< of its share, bytes worth keeping beyond what it has registered
};
/// That of process `self`, which has so many bytes registered.
Sharing sharing_of(const std::vector<NodeRoom::Member>& members, std::size_t self, std::uint64_t limit,
                   std::uint64_t registered);

class Attendance {
 public:
  /// `every`: operations from one look at the others to the next.
  Attendance(NodeRoom& room, std::uint64_t every) : room_(room), every_(every) {}

  /// Whether it is time to look, `operations` after the last time.
  bool due(Time now, std::uint64_t operations) const;
  /// Tells the others, and hears what they tell.
  std::vector<NodeRoom::Member> attend(Time now, const NodeRoom::Post& post, std::size_t& self);

 private:
  NodeRoom& room_;
  const std::uint64_t every_;
  Time attended_ = 0;
  Time forgave_ = 0;  ///< when shortages were last forgotten that nobody repeats
  std::uint64_t shortages_seen_ = 0;
};

}  // namespace pinion::node
