// Arrays, and copies of one run of bytes into them and out of them.
#include <algorithm>

#include "support/made_up_cuda/arrays.h"
#include "support/made_up_cuda/copies.h"
#include "support/made_up_cuda/entry.h"

namespace pinion::made_up_cuda {

std::size_t element_bytes(int format, unsigned channels) {
  const bool one = format == 1 || format == 8;
  const bool two = format == 2 || format == 9 || format == 16;
  return channels * (one ? 1U : two ? 2U : 4U);
}

namespace {

Result create(Call& call, Handle* made, const ArrayShape3D& shape) {
  const std::size_t width = shape.width * element_bytes(shape.format, shape.channels);
  if (!made || width == 0) return kInvalidValue;
  auto array = std::make_shared<Array>();
  array->width = width;
  array->height = std::max<std::size_t>(shape.height, 1);
  array->depth = std::max<std::size_t>(shape.depth, 1);
  array->shape = shape;
  array->base = world().memory.allocate(array->width * array->height * array->depth, call.context()->id);
  if (!array->base) return kOutOfMemory;
  *made = world().arrays.add(std::move(array));
  return kSuccess;
}

/// The device's address of a byte of an array; 0: there is no such byte.
DevicePointer inside(const void* handle, std::size_t offset) {
  const auto array = world().arrays.find(handle);
  return array && offset < array->width * array->height * array->depth ? array->base + offset : 0;
}

Result copy_array(Call& call, Default meaning, const void* handle, Address to, Address from,
                  std::size_t bytes, bool async) {
  MADE_UP_STREAM(stream, handle);
  return to == 0 || from == 0 ? kInvalidValue : copy(call, stream, Transfer::linear(to, from, bytes), async);
}

}  // namespace
}  // namespace pinion::made_up_cuda

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C
using pinion::Address;

extern "C" {

Result cuArrayCreate_v2(Handle* array, const ArrayShape* shape) {
  MADE_UP_CALL(Need::kContext);
  if (!shape) return kInvalidValue;
  return create(call, array, {shape->width, shape->height, 0, shape->format, shape->channels, 0});
}

Result cuArray3DCreate_v2(Handle* array, const ArrayShape3D* shape) {
  MADE_UP_CALL(Need::kContext);
  if (!shape) return kInvalidValue;
  return create(call, array, *shape);
}

Result cuArray3DGetDescriptor_v2(ArrayShape3D* shape, Handle handle) {
  MADE_UP_CALL(Need::kContext);
  const auto array = world().arrays.find(handle);
  if (!array) return kInvalidHandle;
  if (!shape) return kInvalidValue;
  *shape = array->shape;
  return kSuccess;
}

Result cuArrayDestroy(Handle handle) {
  MADE_UP_CALL(Need::kContext);
  const auto array = world().arrays.remove(handle);
  return array && world().memory.free(array->base) ? kSuccess : kInvalidHandle;
}

}  // extern "C"

MADE_UP_PAIR(cuMemcpyHtoA_v2, _ptds, (Handle to, std::size_t offset, const void* from, std::size_t bytes),
             (to, offset, from, bytes)) {
  return copy_array(call, meaning, nullptr, inside(to, offset), reinterpret_cast<Address>(from), bytes,
                    false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyAtoH_v2, _ptds, (void* to, Handle from, std::size_t offset, std::size_t bytes),
             (to, from, offset, bytes)) {
  return copy_array(call, meaning, nullptr, reinterpret_cast<Address>(to), inside(from, offset), bytes,
                    false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyHtoAAsync_v2, _ptsz,
             (Handle to, std::size_t offset, const void* from, std::size_t bytes, Handle stream),
             (to, offset, from, bytes, stream)) {
  return copy_array(call, meaning, stream, inside(to, offset), reinterpret_cast<Address>(from), bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyAtoHAsync_v2, _ptsz,
             (void* to, Handle from, std::size_t offset, std::size_t bytes, Handle stream),
             (to, from, offset, bytes, stream)) {
  return copy_array(call, meaning, stream, reinterpret_cast<Address>(to), inside(from, offset), bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyDtoA_v2, _ptds, (Handle to, std::size_t offset, DevicePointer from, std::size_t bytes),
             (to, offset, from, bytes)) {
  return copy_array(call, meaning, nullptr, inside(to, offset), from, bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyAtoD_v2, _ptds, (DevicePointer to, Handle from, std::size_t offset, std::size_t bytes),
             (to, from, offset, bytes)) {
  return copy_array(call, meaning, nullptr, to, inside(from, offset), bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyAtoA_v2, _ptds,
             (Handle to, std::size_t to_offset, Handle from, std::size_t from_offset, std::size_t bytes),
             (to, to_offset, from, from_offset, bytes)) {
  return copy_array(call, meaning, nullptr, inside(to, to_offset), inside(from, from_offset), bytes, false);
}
MADE_UP_END
