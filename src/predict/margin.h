// The margin by which a use is prepared for before its predicted time: the one that makes readiness in vain
// and late uses together cost least, by the recent errors. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"

namespace pinion {

struct Margin {
  static constexpr Duration kNotReady = INT64_MIN;  ///< being ready costs more than it saves

  Duration worth = -1;  ///< that it was worked out for; -1: none
  Duration by = 0;
  double risk = 0;
  std::size_t errors = 0;  ///< so many further ones may come before it is worked out anew

  bool ready() const { return by != kNotReady; }
};

/// `errors`: actual less predicted times, in order of size. `worth`: being ready this much too soon is as bad
/// as one late use. `own`: how many errors the buffer itself has had.
Margin best_margin(std::span<const float> errors, Duration worth, std::size_t own);

}  // namespace pinion
