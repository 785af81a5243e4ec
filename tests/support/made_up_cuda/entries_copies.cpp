// Copies and memsets.
#include <cstring>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/copies.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C
using pinion::Address;
using pinion::Range;
using pinion::gpu::Copy2D;
using pinion::gpu::CopyAttributes;

namespace {

Address address(const void* memory) { return reinterpret_cast<Address>(memory); }

/// A copy of one run of bytes in the stream of a handle.
Result copy_linear(Call& call, Default meaning, const void* handle, Address to, Address from,
                   std::size_t bytes, bool async) {
  MADE_UP_STREAM(stream, handle);
  return copy(call, stream, Transfer::linear(to, from, bytes), async);
}

template <class Shape>
Result copy_shape(Call& call, Default meaning, const void* handle, const Shape* shape, bool async) {
  MADE_UP_STREAM(stream, handle);
  Transfer transfer;
  if (!shape || !describe(*shape, transfer)) return kInvalidValue;
  return copy(call, stream, transfer, async);
}

/// Sets elements of `size` bytes, on the device or in registered memory.
Result set(Call& call, Default meaning, const void* handle, DevicePointer to, const void* value,
           std::size_t size, std::size_t count, bool async) {
  MADE_UP_STREAM(stream, handle);
  if (count == 0) return kSuccess;
  std::vector<char> pattern(size * count);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(&pattern[i * size], value, size);
  Transfer transfer = Transfer::linear(to, address(pattern.data()), pattern.size());
  if (const Result refused = check_capture(*stream)) return refused;
  if (const Result refused = prepare(transfer)) return refused;
  if (transfer.to.pageable()) return kInvalidValue;
  const auto bytes = std::make_shared<const std::vector<char>>(std::move(pattern));
  const auto body = [transfer, bytes] { return run(transfer, bytes.get()); };
  if (stream->capture) {
    record(*stream, {{}, body, nullptr});
    return kSuccess;
  }
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->run = body;
  submit(stream, work);
  return async ? kSuccess : await(call.lock(), *stream->context, *work, call.name());
}

/// What both versions of the batch do.
Result batch(Call& call, Default meaning, const void* handle, const DevicePointer* to,
             const DevicePointer* from, const std::size_t* bytes, std::size_t count,
             const CopyAttributes* attributes, std::size_t attribute_count) {
  MADE_UP_STREAM(stream, handle);
  if (!to || !from || !bytes || count == 0 || !attributes || attribute_count == 0) return kInvalidValue;
  const int order = attributes[0].source_access_order;
  if (order < 1 || order > 3) return kInvalidValue;
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < count; ++i) transfers.push_back(Transfer::linear(to[i], from[i], bytes[i]));
  return copy_batch(call, stream, std::move(transfers), static_cast<AccessOrder>(order));
}

}  // namespace

MADE_UP_PAIR(cuMemcpyHtoD_v2, _ptds, (DevicePointer to, const void* from, std::size_t bytes),
             (to, from, bytes)) {
  return copy_linear(call, meaning, nullptr, to, address(from), bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyDtoH_v2, _ptds, (void* to, DevicePointer from, std::size_t bytes), (to, from, bytes)) {
  return copy_linear(call, meaning, nullptr, address(to), from, bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyDtoD_v2, _ptds, (DevicePointer to, DevicePointer from, std::size_t bytes),
             (to, from, bytes)) {
  return copy_linear(call, meaning, nullptr, to, from, bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy, _ptds, (DevicePointer to, DevicePointer from, std::size_t bytes), (to, from, bytes)) {
  return copy_linear(call, meaning, nullptr, to, from, bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyHtoDAsync_v2, _ptsz,
             (DevicePointer to, const void* from, std::size_t bytes, Handle stream),
             (to, from, bytes, stream)) {
  return copy_linear(call, meaning, stream, to, address(from), bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyDtoHAsync_v2, _ptsz, (void* to, DevicePointer from, std::size_t bytes, Handle stream),
             (to, from, bytes, stream)) {
  return copy_linear(call, meaning, stream, address(to), from, bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyDtoDAsync_v2, _ptsz,
             (DevicePointer to, DevicePointer from, std::size_t bytes, Handle stream),
             (to, from, bytes, stream)) {
  return copy_linear(call, meaning, stream, to, from, bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyAsync, _ptsz, (DevicePointer to, DevicePointer from, std::size_t bytes, Handle stream),
             (to, from, bytes, stream)) {
  return copy_linear(call, meaning, stream, to, from, bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyPeer, _ptds,
             (DevicePointer to, Handle to_context, DevicePointer from, Handle from_context,
              std::size_t bytes),
             (to, to_context, from, from_context, bytes)) {
  (void)to_context, (void)from_context;
  return copy_linear(call, meaning, nullptr, to, from, bytes, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyPeerAsync, _ptsz,
             (DevicePointer to, Handle to_context, DevicePointer from, Handle from_context, std::size_t bytes,
              Handle stream),
             (to, to_context, from, from_context, bytes, stream)) {
  (void)to_context, (void)from_context;
  return copy_linear(call, meaning, stream, to, from, bytes, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy2D_v2, _ptds, (const Copy2D* shape), (shape)) {
  return copy_shape(call, meaning, nullptr, shape, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy2DUnaligned_v2, _ptds, (const Copy2D* shape), (shape)) {
  return copy_shape(call, meaning, nullptr, shape, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy2DAsync_v2, _ptsz, (const Copy2D* shape, Handle stream), (shape, stream)) {
  return copy_shape(call, meaning, stream, shape, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy3D_v2, _ptds, (const Copy3D* shape), (shape)) {
  return copy_shape(call, meaning, nullptr, shape, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy3DAsync_v2, _ptsz, (const Copy3D* shape, Handle stream), (shape, stream)) {
  return copy_shape(call, meaning, stream, shape, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyBatchAsync, _ptsz,
             (DevicePointer * to, DevicePointer* from, std::size_t* bytes, std::size_t count,
              CopyAttributes* attributes, std::size_t* indices, std::size_t attribute_count,
              std::size_t* failed, Handle stream),
             (to, from, bytes, count, attributes, indices, attribute_count, failed, stream)) {
  (void)indices, (void)failed;
  return batch(call, meaning, stream, to, from, bytes, count, attributes, attribute_count);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyBatchAsync_v2, _ptsz,
             (DevicePointer * to, DevicePointer* from, std::size_t* bytes, std::size_t count,
              CopyAttributes* attributes, std::size_t* indices, std::size_t attribute_count, Handle stream),
             (to, from, bytes, count, attributes, indices, attribute_count, stream)) {
  (void)indices;
  return batch(call, meaning, stream, to, from, bytes, count, attributes, attribute_count);
}
MADE_UP_END

MADE_UP_PAIR(cuMemsetD8_v2, _ptds, (DevicePointer to, unsigned char value, std::size_t count),
             (to, value, count)) {
  return set(call, meaning, nullptr, to, &value, sizeof value, count, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemsetD8Async, _ptsz,
             (DevicePointer to, unsigned char value, std::size_t count, Handle stream),
             (to, value, count, stream)) {
  return set(call, meaning, stream, to, &value, sizeof value, count, true);
}
MADE_UP_END

MADE_UP_PAIR(cuMemsetD32_v2, _ptds, (DevicePointer to, unsigned value, std::size_t count),
             (to, value, count)) {
  return set(call, meaning, nullptr, to, &value, sizeof value, count, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemsetD32Async, _ptsz, (DevicePointer to, unsigned value, std::size_t count, Handle stream),
             (to, value, count, stream)) {
  return set(call, meaning, stream, to, &value, sizeof value, count, true);
}
MADE_UP_END
