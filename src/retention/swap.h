// Swapping under a limit: a registration ahead that lacks room waits here. As soon as regions are
// idle that are needed later, these go for it, the farthest next use first (registry/victims.h): Belady's
// choice, made before the use instead of at it. So a loop over more buffers than the limit has room for finds
// each of them registered.
//
//   - A region goes only if it can be back in time: its use must come later than the one that it goes for, by
//     as much as a swap takes. Else the miss would only move from one buffer to the other. The
//     only region would go at that use anyway, so it goes if its own use comes later at all.
//   - Where the program stalls, all predicted uses are overdue alike, and their order holds: a use is waited
//     for until it comes, or has been overdue for longer than its buffer ever was away.
//   - Regions go only if all that go together make room.
//   - The domains of a process share its limits: the own one's regions go first.
//   - Swaps are exempt from reservations of the time budget: if one is left out, its use costs for certain as
//     much as the other one may.
//
// Owned by the desk; the helper's thread, or the simulator's.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "retention/kept_domain.h"

namespace pinion {

class Swap {
 public:
  /// An action in a domain; null: none now.
  using Turn = std::pair<KeptDomain*, Retention::Action>;

  /// Takes up a registration ahead that was refused; false where the reason was other than want of room.
  bool take_up(KeptDomain& in, const Retention::Action& refused, Time now);
  /// Registers nothing of what waits.
  void give_up() { waiting_.clear(); }
  /// The next region to let go, or the registration that there is room for now. `may_begin`: beyond what is
  /// claimed already.
  Turn next(std::span<KeptDomain* const> domains, Time now, bool may_begin = true);
  /// Bytes that the regions of a swap under way leave to the registration that they go for: they stay
  /// withheld from the node's other processes.
  std::uint64_t makes_room() const { return makes_room_; }
  /// Returns when to look again, if all stays quiet until then.
  Time next_deadline() const;

 private:
  struct Waiting {
    KeptDomain* in;
    Retention::Action action;
    Time retry;  ///< even if room still seems to lack: others may have given theirs back
  };
  /// The most that are kept: only the ones needed first are looked at.
  static constexpr std::size_t kMost = 64;
  static constexpr Duration kLeastWait = 100 * kMicrosecond;

  static Time retry_at(const KeptDomain& in, const Retention::Action& action, Time now);
  /// Claims the regions that go for the registration.
  void claim(const Waiting& waiting, std::span<KeptDomain* const> domains);
  void claimed(KeptDomain& in, const std::vector<Region*>& regions);

  std::vector<Waiting> waiting_;  ///< by their use, the first one last
  std::vector<Turn> claimed_;     ///< to be deregistered
  std::uint64_t makes_room_ = 0;
};

}  // namespace pinion
