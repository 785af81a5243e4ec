// A call of a device that was made: for the counters, the log and the estimates of costs. Plain data.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"

namespace pinion {

struct DeviceCall {
  Range pages;
  bool registration = false;  ///< else a deregistration
  /// Of a registration in memory of larger pages than the system's, rounded to them: their size. Else 0.
  std::size_t page_bytes = 0;
  std::uint32_t entries =
      0;                     ///< translation entries of the registration; pages, where the device counts none
  Ticks begin = 0, end = 0;  ///< by the domain's clock
  Duration preempted = 0;    ///< of it, the kernel ran something else on the core
  Error error;  ///< a region that was not deregistered stays registered and counted, for a later try
};

}  // namespace pinion
