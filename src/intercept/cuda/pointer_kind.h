// Asks the driver what lies at an address. Any thread, outside of memory hooks.
#pragma once

#include "intercept/cuda/shapes.h"

namespace pinion::cuda {

/// Managed memory counts as unknown: it may be at either place.
enum class PointerKind { host, device, unknown };
PointerKind kind_of(DevicePointer pointer);

/// Empties the ranges of a device's memory.
Sides of_host(Sides sides);

}  // namespace pinion::cuda
