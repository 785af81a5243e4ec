// The ledger of the helper's work while all cores of the node are busy: the helper then takes its time from
// the program. It counts in seconds that the run loses, as ranks wait for the rank that a helper delays. A
// node with more ranks than cores loses the sum over its ranks divided by its cores. Allowed are a credit for
// learning, which grows with the cost of registering everything once, and a share of the time with all cores
// busy. While a core is idle the ledger stands still,
// and the helper works without bound.
//
// The bound is kept in three ways:
//   - a region is let go only where deregistering and registering it again fits, and frees enough for it. The
//     price of a second grows as the rest of the share shrinks, so the best regions go first. Where only the
//     deregistration fits, the region's thread may register it, within the time budget;
//   - looks at the records take at most a quarter of the share: the dearer a look, the longer the sleep
//     before it. The helper wakes for the end of a transfer only where that is affordable;
//   - with the share used up, the helper stops learning until enough has come together again. Regions that
//     are gone are still registered ahead: their cost was set aside.
// So work exceeds the bound by the cost of draining the records of a rest, at most.
//
// Under a limit, the helper's swaps spare a thread the same work, and the wait for it. So each raises the
// bound by its own time, except where it was in vain.
//
// One for all domains of a process; the helper's thread (or the simulator's).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace pinion {

class HelperShare {
 public:
  struct Settings {
    double share = 0.06;     ///< kUnbounded: all is allowed
    double delay = 1;        ///< seconds that the run loses by one of the helper's: delay_of()
    bool core_idle = false;  ///< until set_core_idle()
  };
  static constexpr double kUnbounded = -1;
  /// Learning costs most at first, when little time has passed: the least credit, and so many times what
  /// registering everything once costs.
  static constexpr Duration kLeastCredit = 10 * kMillisecond;
  static constexpr double kCreditOfOnce = 2.5;
  /// A rank that a helper delays has its peers wait; their own helpers delay them at other times. Measured:
  /// up to twice the helper's time (docs/measurements.md).
  static constexpr double kWaitsForPeers = 2;

  /// Returns the delay of a node with so many ranks on so many cores.
  static double delay_of(double ranks, double cores) {
    return ranks > 1 ? kWaitsForPeers * std::max(1.0, ranks / cores) : 1;
  }

  HelperShare(Settings settings, Time start) : settings_(settings), now_(start) {}

  void set_core_idle(bool idle) { settings_.core_idle = idle; }
  bool core_idle() const { return settings_.core_idle; }
  /// The share limits the helper now.
  bool binds() const { return settings_.share >= 0 && !settings_.core_idle; }

  /// The helper has used so much CPU since its start; modelled device time counts as such. `set_aside`: to
  /// register the regions that are gone. `only_looked`: just looks since the last call.
  void used(Duration cpu, Duration set_aside, bool only_looked, Time now);

  /// Registering once everything that has been used so far costs so much.
  void registering_once(Duration cost) { once_ = cost; }

  /// Counts work that was done in place of the program's threads. Negative: it was in vain.
  void did_for_threads(Duration work) {
    if (!settings_.core_idle) for_threads_ = std::max(0.0, for_threads_ + lost(work));
  }

  /// Returns whether so much work fits, and is worth it to have `freed`: seconds of holding everything,
  /// saved.
  bool affords(Duration work, double freed) const;
  /// The longest of these and its own time is the helper's sleep.
  Duration least_sleep() const;
  /// The share is used up: learning stops.
  bool resting() const { return resting_; }

  Duration allowed() const;  ///< so far; 0 while unbounded
  Duration spent() const { return static_cast<Duration>(spent_); }

 private:
  double left() const;
  /// CPU time as time of the run.
  double lost(Duration cpu) const { return static_cast<double>(cpu) * settings_.delay; }

  Settings settings_;
  Time now_;
  Duration once_ = 0;
  Duration cpu_ = 0;
  Duration busy_ = 0;  ///< time with all cores busy
  double spent_ = 0;
  double for_threads_ = 0;
  double set_aside_ = 0;
  double look_ = 5.0 * kMicrosecond;  ///< CPU of a mere look, lately
  bool resting_ = false;
};

}  // namespace pinion
