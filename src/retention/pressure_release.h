// What goes while memory is short on the node: idle regions, the one whose next use is farthest first, until
// the shortage ends. They come back at their next use, as nothing is registered ahead meanwhile. A region
// counts as idle that no lease has held for a tenth of a second, so that a buffer in use does not go between
// two uses.
//
// Owned by the desk; the helper's thread, or the simulator's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "retention/kept_domain.h"
#include "runlog/format.h"

namespace pinion {

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

}  // namespace pinion
