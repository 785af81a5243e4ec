// Room for what the program itself pins: where the system refuses that, everything idle goes.
//
// Owns nothing. Any thread, outside of hooks; it calls devices, and waits.
#pragma once

#include "lease/lease_path.h"

namespace pinion {

/// Lets all go that is idle, and returns when it is gone. False: nothing is registered.
bool make_room(LeasePath& leases, ThreadContext& thread);

}  // namespace pinion
