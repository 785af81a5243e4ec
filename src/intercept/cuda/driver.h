// The functions of the libcuda that the program has loaded: the library's own, behind every library that
// stands before it and behind our wrappers. libcuda is never loaded by us, and never unloaded once it is
// found.
//
// Owns the table, which is written once. Any thread, outside of memory hooks.
#pragma once

#include "device/cuda/driver_api.h"

namespace pinion::cuda {

/// Looks for libcuda unless it is known. False: it is not loaded, or lacks a function that we need.
bool has_driver();

/// All members are null until has_driver() has been true.
const Driver& driver();

}  // namespace pinion::cuda
