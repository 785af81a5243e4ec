// Measures what gather_plan.h decides by: the costs of a device's requests and elements, through a probe that
// the caller hands down, and those of copying on this machine. Ordinary code: blocks, maps memory of its own.
// One thread at a time a probe.
#pragma once

#include "base/error.h"
#include "pinion/pinion.h"

namespace pinion {

/// Does what pinion_gather_measure() does; the probe is valid, `costs` is whole. EIO: a transfer failed.
Error measure_gather(const pinion_gather_probe& probe, pinion_gather_costs& costs);

/// The device's part of it. By the times that the probe returns, and no other.
Error measure_requests(const pinion_gather_probe& probe, pinion_gather_costs& costs);

}  // namespace pinion
