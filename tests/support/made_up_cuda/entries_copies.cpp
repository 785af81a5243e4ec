// Copies of one run of bytes, and of rows and slices.
#include "support/made_up_cuda/copies.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C
using pinion::Address;
using pinion::gpu::Copy2D;

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
