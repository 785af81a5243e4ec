#include "intercept/cuda/pointer_kind.h"

#include "intercept/cuda/driver.h"

namespace pinion::cuda {

PointerKind kind_of(DevicePointer pointer) {
  const Driver& functions = driver();
  unsigned type = 0;
  const Result result = functions.pointer_attribute(&type, kAttributeMemoryType, pointer);
  if (result == kInvalidValue) return PointerKind::host;  // memory that the driver does not know
  if (result != kSuccess) return PointerKind::unknown;
  unsigned managed = 0;
  if (functions.pointer_attribute(&managed, kAttributeIsManaged, pointer) != kSuccess || managed != 0)
    return PointerKind::unknown;
  if (type == kMemoryTypeHost) return PointerKind::host;
  return type == kMemoryTypeDevice ? PointerKind::device : PointerKind::unknown;
}

Sides of_host(Sides sides) {
  for (Block& side : sides)
    if (!side.empty() && kind_of(side.first.begin) == PointerKind::device) side = {};
  return sides;
}

std::size_t element_bytes(const BatchCopy& copy) {
  void* const array = array_of(copy);
  if (array == nullptr) return 1;
  constexpr std::size_t kLargest = 16;  // four channels of four bytes
  ArrayShape shape{};
  if (driver().array_shape == nullptr || driver().array_shape(&shape, array) != kSuccess) return kLargest;
  switch (shape.format) {  // CUarray_format
    case 0x01:
    case 0x08:
      return shape.channels;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2 * std::size_t{shape.channels};
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4 * std::size_t{shape.channels};
    default:
      return kLargest;
  }
}

}  // namespace pinion::cuda
