// The device of a program that registers memory itself: by operations of its own (struct
// pinion_device_operations of pinion.h). Threads as in device.h. The operations are the program's:
// application threads and the helper call them, also concurrently, and hold no lock of Pinion's.
#pragma once

#include <memory>

#include "device/device.h"

struct pinion_device_operations;

namespace pinion {

struct OperationsDeviceResult {
  Error error;
  std::unique_ptr<Device> device;
};

/// Copies the structure. EINVAL: its size or version is unknown, or it lacks an operation.
OperationsDeviceResult make_operations_device(const pinion_device_operations& operations);

}  // namespace pinion
