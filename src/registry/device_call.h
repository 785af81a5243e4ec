// A call of a device that was made, for the counters, the log and the estimates of costs. Plain data.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"

namespace pinion {

class Domain;

struct DeviceCall {
  Range pages;
  bool registration = false;  ///< else a deregistration
  /// The page size of a registration that is rounded to larger pages than the system's; else 0.
  std::size_t page_bytes = 0;
  /// Translation entries of the registration; pages, where the device counts none.
  std::uint32_t entries = 0;
  Ticks begin = 0, end = 0;  ///< by the domain's clock
  Duration preempted = 0;    ///< the part of it in which the kernel ran something else on the core
  Error error;  ///< a region that was not deregistered stays registered and counted, for a later try
  const Domain* domain = nullptr;  ///< whose region it was
};

}  // namespace pinion
