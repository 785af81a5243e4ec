// The answers to a lack of room or memory: swaps under a limit, the credit for work done in place of
// threads, and what goes while the node is short of memory. Works on the domains as the desk keeps them
// (KeptDomain). The desk owns it; the helper's thread, or the simulator's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/range.h"
#include "registry/domain.h"
#include "retention/costs.h"
#include "retention/retention.h"
#include "runlog/format.h"

namespace pinion {

/// Everything that a domain has had in use, registered once: the most that leave-pinned had at a time, so
/// that memory which comes and goes counts once.
struct RegisteredOnce {
  std::size_t pages = 0, calls = 0;
  void add(const UnderLeavePinned& lease) {
    const std::size_t all = lease.all_bytes / page_size();
    if (lease.fresh_bytes == 0 || all <= pages) return;
    pages = all;
    ++calls;
  }
};

/// A domain with its retention and the estimates of its device's costs, as the desk keeps them.
struct KeptDomain {
  int number = 0;  ///< by Desk::add()
  Domain* domain = nullptr;
  bool observed = false;            ///< it only sees transfers; set before Desk::add()
  bool gains_by_hugepages = false;  ///< registrations take less time in them
  bool gains_wholly = false;        ///< only those of regions that lie in them as a whole
  bool untimed_hits = false;        ///< hits leave no time before memory is short; set before Desk::add()
  CostEstimates costs;
  std::unique_ptr<Retention> retention;
  RegisteredOnce once;
};

/// Swapping under a limit: a registration ahead that lacks room waits here. As soon as regions are
/// idle that are needed later, these go for it, the farthest next use first (registry/victims.h): Belady's
/// choice, made before the use instead of at it. So a loop over more buffers than the limit has room for
/// finds each of them registered.
///
///   - A region goes only if it can be back in time: its use must come later than the one that it goes for,
///   by
///     as much as a swap takes. Else the miss would only move from one buffer to the other. The
///     only region would go at that use anyway, so it goes if its own use comes later at all.
///   - Where the program stalls, all predicted uses are overdue alike, and their order holds: a use is waited
///     for until it comes, or has been overdue for longer than its buffer ever was away.
///   - Regions go only if all that go together make room.
///   - The domains of a process share its limits: the own one's regions go first.
///   - Swaps are exempt from reservations of the time budget: if one is left out, its use costs for certain
///   as
///     much as the other one may.
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

/// Lets idle regions go while memory is short on the node, the one whose next use is farthest first, until
/// the shortage ends. They come back at their next use, as nothing is registered ahead meanwhile. A region
/// counts as idle once no lease has held it for a tenth of a second. A buffer in use stays between two uses.
class PressureRelease {
 public:
  /// The node was looked at, and is short of memory, or not.
  void see(bool is_short);
  bool is_short() const { return short_; }

  /// Claims the next region to deregister; null: none until the next see(). `scale`: of the uses' ticks.
  std::pair<KeptDomain*, Region*> next(std::span<KeptDomain* const> domains, const Calibration& scale,
                                       Time now);
  void add_to(runlog::Counters& counters) const;

 private:
  struct Idle {
    KeptDomain* in;
    RegionRef ref;
    Time next_use;  ///< 0: not known
    Time last_use;
    /// Whether it goes after `other`.
    bool is_kept_longer(const Idle& other) const;
  };
  static constexpr Duration kRest = 100 * kMillisecond;

  void find_idle(std::span<KeptDomain* const> domains, const Calibration& scale, Time now);

  bool short_ = false;
  bool looked_ = false;      ///< since the last see()
  bool released_ = false;    ///< something, since the shortage began
  std::vector<Idle> idle_;   ///< the first to go last
  std::uint64_t bytes_ = 0;  ///< in all
  std::uint64_t times_ = 0;  ///< shortages in which something went
};

/// Device calls that the helper makes in place of the program's threads, where a limit binds: without it the
/// use would register, and evict for that. Each registration awaits its use, which the time budget gives it
/// credit for; it is in vain where the region or the memory goes before.
class SparedWork {
 public:
  /// `budget` outlives it.
  explicit SparedWork(TimeBudget& budget) : budget_(budget) {}

  /// A device call of the helper has taken so long.
  void made(KeptDomain& in, const Retention::Action& action, Duration took) {
    if (action.kind == Retention::Action::Kind::deregister) {
      clearing_ += took;
      return;
    }
    settle(false, [](const Made& made) { return !made.in->retention->wants(made.action); });
    made_.push_back({&in, action, budget_.did_for_threads(std::exchange(clearing_, 0) + took + 2 * kWakes)});
  }
  /// A transfer has used registered memory.
  void used(const KeptDomain& in, Range range) {
    settle(true, [&](const Made& made) { return made.in == &in && range.overlaps(made.action.pages); });
  }
  /// The region of these pages went.
  void gone(const KeptDomain& in, Range pages) {
    settle(false, [&](const Made& made) { return made.in == &in && pages.overlaps(made.action.pages); });
  }

 private:
  /// A registration that awaits its use.
  struct Made {
    KeptDomain* in;
    Retention::Action action;
    Duration receipt;
  };

  template <class Which>
  void settle(bool used, Which&& which) {
    std::erase_if(made_, [&](const Made& made) {
      if (!which(made)) return false;
      budget_.settle(made.receipt, used);
      return true;
    });
  }

  TimeBudget& budget_;
  Duration clearing_ = 0;  ///< deregistrations for the next registration
  std::vector<Made> made_;
};

}  // namespace pinion
