// The score of a domain's predictions: every reuse of a buffer counts, an unpredicted one as wrong. Plain
// counts, of retention's thread.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/clock.h"
#include "runlog/format.h"

namespace pinion {

struct PredictionScore {
  std::uint64_t reuses = 0;
  std::uint64_t within_0_5 = 0, within_5 = 0;  ///< at the last moment it could still act
  std::uint64_t at_release_within_0_5 = 0, at_release_within_5 = 0;  ///< one full reuse ahead
  std::uint64_t late = 0;

  /// Counts a reuse at `time` that came so long after the use before; kNever: it was not predicted.
  void count(Time time, Duration interval, Time at_release, Time at_last) {
    ++reuses;
    const double whole = static_cast<double>(interval), most = 0.05 * whole, least = 0.005 * whole;
    const auto compare = [&](Time predicted, std::uint64_t& almost_right, std::uint64_t& near) {
      if (predicted == kNever) return;
      const double error = std::abs(static_cast<double>(predicted - time));
      almost_right += error <= least;
      near += error <= most;
    };
    compare(at_release, at_release_within_0_5, at_release_within_5);
    compare(at_last, within_0_5, within_5);
  }
  /// Adds to the counters of the process, which are zero or have another domain's counts.
  void add_to(runlog::Counters& counters) const {
    counters.reuses += reuses;
    counters.within_0_5 += within_0_5;
    counters.within_5 += within_5;
    counters.at_release_within_0_5 += at_release_within_0_5;
    counters.at_release_within_5 += at_release_within_5;
    counters.late += late;
  }
};

}  // namespace pinion
