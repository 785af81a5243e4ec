// Device calls that the helper makes in place of the program's threads, where a limit binds: without it the
// use would register, and evict for that. Each registration awaits its use, which the time budget gives it
// credit for; it is in vain where the region or the memory goes before.
//
// Owned by the desk; the helper's thread, or the simulator's.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "retention/kept_domain.h"

namespace pinion {

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
    made_.push_back({&in, action, budget_.did_for_threads(std::exchange(clearing_, 0) + took + kWakes)});
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
  /// CPU of the helper's wake-ups for both calls.
  static constexpr Duration kWakes = 20 * kMicrosecond;

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
