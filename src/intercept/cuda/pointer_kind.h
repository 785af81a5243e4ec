// Asks the driver what lies at an address. Any thread, outside of memory hooks.
#pragma once

#include "intercept/cuda/shapes.h"

namespace pinion::cuda {

/// Managed memory counts as unknown: it may be at either place.
enum class PointerKind { host, device, unknown };
PointerKind kind_of(DevicePointer pointer);

/// Empties the blocks of a device's memory.
Sides of_host(Sides sides);

/// The bytes in which a copy of a batch counts: of an element of its array, or one. An array of which the
/// driver does not say it may have the largest elements.
std::size_t element_bytes(const BatchCopy& copy);

}  // namespace pinion::cuda
