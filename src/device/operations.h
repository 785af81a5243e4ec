// The device of a program that registers memory itself: by operations of its own (struct
// pinion_device_operations of pinion.h). Threads as in device.h. The operations are the program's:
// they are called without a lock of Pinion's, by application threads and by the helper, also at the same
// time.
#pragma once

#include <memory>

#include "device/device.h"

struct pinion_device_operations;

namespace pinion {

struct OperationsDeviceResult {
  Error error;
  std::unique_ptr<Device> device;
};

/// Copies the structure. EINVAL: it is of no size or version that is known, or lacks an operation.
OperationsDeviceResult make_operations_device(const pinion_device_operations& operations);

}  // namespace pinion
