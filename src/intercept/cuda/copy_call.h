// A call of the program that copies between host memory and a device, as the front sees it. Plain values.
#pragma once

#include <cstddef>

#include "base/range.h"
#include "device/cuda/driver_api.h"

namespace pinion::cuda {

enum class Direction : unsigned char { to_device, from_device };

/// A copy of one run of bytes.
struct LinearCopy {
  Direction direction = Direction::to_device;
  bool async = false;             ///< the function may return before the copy is done
  Stream stream = kLegacyStream;  ///< never null: the function's version has chosen a default stream
  DevicePointer device = 0;
  void* host = nullptr;
  std::size_t bytes = 0;

  Range range() const { return Range::of(host, bytes); }
};

}  // namespace pinion::cuda
