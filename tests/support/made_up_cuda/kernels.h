// The kernels that a module can have by name: those of driver_facts (tests/gpu). All other names mean a
// kernel that does nothing.
//
// Owns nothing (world.h does). Under the driver's mutex; kernels run without it.
#pragma once

#include "support/made_up_cuda/world.h"

namespace pinion::made_up_cuda {

/// The handle of the kernel of that name.
Handle named_kernel(const char* name);

}  // namespace pinion::made_up_cuda
