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
  for (Range& side : sides)
    if (!side.empty() && kind_of(side.begin) == PointerKind::device) side = {};
  return sides;
}

}  // namespace pinion::cuda
