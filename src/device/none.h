// The device of a process that only measures: its transfers are recorded, and none of their memory is
// registered. Threads as in device.h.
#pragma once

#include <memory>

#include "device/device.h"

namespace pinion {

std::unique_ptr<Device> make_no_device();

}  // namespace pinion
