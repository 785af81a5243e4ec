// The parameters of copies in rows, as the driver lays them out, and the host memory that they touch: the
// rows themselves. Plain values; owns nothing.
#pragma once

#include <array>
#include <cstddef>

#include "device/cuda/block.h"
#include "device/cuda/driver_api.h"

namespace pinion::cuda {

struct Side2D {
  std::size_t x, y;
  unsigned type;
  const void* host;
  DevicePointer device;
  void* array;
  std::size_t pitch;
};
struct Copy2D {
  Side2D source, destination;
  std::size_t width, height;
};
static_assert(sizeof(Copy2D) == 128);

struct Side3D {
  std::size_t x, y, z, level;
  unsigned type;
  const void* host;
  DevicePointer device;
  void* array;
  void* context;  ///< of copies between peers; else reserved
  std::size_t pitch, height;
};
struct Copy3D {
  Side3D source, destination;
  std::size_t width, height, depth;
};
static_assert(sizeof(Copy3D) == 200);

/// A side of a copy of cuMemcpy3DBatchAsync.
struct BatchSide {
  int type;
  union {
    struct {
      DevicePointer pointer;
      std::size_t row, layer;  ///< in elements; 0: as the extent
      int location[2];
    } memory;
    struct {
      void* array;
      std::size_t x, y, z;
    } array;
  };
};
struct BatchCopy {
  BatchSide source, destination;
  std::size_t width, height, depth;  ///< in elements
  int access_order;
  unsigned flags;
};
static_assert(sizeof(BatchSide) == 40 && sizeof(BatchCopy) == 112);

struct Setting {
  DevicePointer memory;
  std::size_t pitch;
  unsigned value, element;
  std::size_t width, height;
};
static_assert(sizeof(Setting) == 40);

/// The parameters of any node of a graph.
struct NodeParameters {
  int type;
  int reserved[3];
  union {
    struct {
      int flags, reserved;
      Context context;
      Copy3D copy;
    } copy;
    Setting setting;
  };
};
inline constexpr int kCopyNode = 1, kSettingNode = 2;

/// Empty where no memory can be there.
Block touched(Address begin, std::size_t bytes);
inline Block touched(const void* memory, std::size_t bytes) {
  return touched(reinterpret_cast<Address>(memory), bytes);
}

/// The memory of both sides. A device's addresses count too: under unified addressing any memory may be
/// meant.
using Sides = std::array<Block, 2>;
Sides touched(const Copy2D& copy);
Sides touched(const Copy3D& copy);
/// `element`: the bytes of an element, where an array is a side.
Sides touched(const BatchCopy& copy, std::size_t element);
/// The array of a side; null: there is none.
void* array_of(const BatchCopy& copy);
Block touched(const Setting& setting);

}  // namespace pinion::cuda
