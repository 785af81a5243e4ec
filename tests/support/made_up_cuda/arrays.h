// Arrays of the device: blocks of its memory with a width in bytes, rows and slices.
//
// Owns nothing (world.h does). Under the driver's mutex.
#pragma once

#include "support/made_up_cuda/types.h"

namespace pinion::made_up_cuda {

/// CUDA_ARRAY_DESCRIPTOR_v2 and CUDA_ARRAY3D_DESCRIPTOR_v2.
struct ArrayShape {
  std::size_t width, height;
  int format;
  unsigned channels;
};
struct ArrayShape3D {
  std::size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

struct Array {
  DevicePointer base = 0;
  std::size_t width = 0;  ///< of a row, in bytes
  std::size_t height = 1, depth = 1;
  ArrayShape3D shape{};  ///< as its creator described it
};

/// The bytes of an element.
std::size_t element_bytes(int format, unsigned channels);

}  // namespace pinion::made_up_cuda
