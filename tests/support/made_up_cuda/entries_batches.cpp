// Batches of copies, copies between contexts in three dimensions, and old and future names.
#include "support/made_up_cuda/arrays.h"
#include "support/made_up_cuda/copies.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C
using pinion::Address;
using pinion::gpu::CopyAttributes;

namespace {

/// CUmemcpy3DOperand: memory with rows and layers in bytes, or an array with an offset.
struct Operand {
  int type;  ///< 1: memory, 2: an array
  union {
    struct {
      DevicePointer address;
      std::size_t row, layer;
      int location[2];
    } memory;
    struct {
      Handle array;
      std::size_t x, y, z;
    } array;
  };
};

/// CUDA_MEMCPY3D_BATCH_OP.
struct BatchCopy {
  Operand source, target;
  std::size_t width, height, depth;
  int order;
  unsigned flags;
};

/// CUDA_MEMCPY3D_PEER.
struct PeerCopy {
  std::size_t source_x, source_y, source_z, source_lod;
  int source_type;
  const void* source_host;
  DevicePointer source_device;
  Handle source_array, source_context;
  std::size_t source_pitch, source_height;
  std::size_t target_x, target_y, target_z, target_lod;
  int target_type;
  void* target_host;
  DevicePointer target_device;
  Handle target_array, target_context;
  std::size_t target_pitch, target_height;
  std::size_t width, height, depth;
};
static_assert(sizeof(PeerCopy) == sizeof(Copy3D));

/// The bytes in which a copy counts: of an element of its array, or one.
std::size_t unit_of(const BatchCopy& copy) {
  for (const Operand* const side : {&copy.source, &copy.target}) {
    const auto array = side->type == 2 ? world().arrays.find(side->array.array) : nullptr;
    if (array) return element_bytes(array->shape.format, array->shape.channels);
  }
  return 1;
}

bool describe_operand(const Operand& operand, const BatchCopy& copy, std::size_t unit, Place& place) {
  if (operand.type == 1) {
    place.address = operand.memory.address;
    place.pitch = (operand.memory.row ? operand.memory.row : copy.width) * unit;
    place.slice = place.pitch * (operand.memory.layer ? operand.memory.layer : copy.height);
    return true;
  }
  const auto array = world().arrays.find(operand.array.array);
  if (operand.type != 2 || !array) return false;
  place.pitch = array->width;
  place.slice = array->width * array->height;
  place.address =
      array->base + operand.array.z * place.slice + operand.array.y * place.pitch + operand.array.x * unit;
  return true;
}

bool is_order(int order) { return order >= 1 && order <= 3; }

/// Makes a batch of either version. A batch with several orders takes that of its first copy.
Result batch(Call& call, Default meaning, const void* handle, const DevicePointer* to,
             const DevicePointer* from, const std::size_t* bytes, std::size_t count,
             const CopyAttributes* attributes, std::size_t attribute_count) {
  MADE_UP_STREAM(stream, handle);
  if (!to || !from || !bytes || count == 0 || !attributes || attribute_count == 0) return kInvalidValue;
  const int order = attributes[0].source_access_order;
  if (!is_order(order)) return kInvalidValue;
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < count; ++i) transfers.push_back(Transfer::linear(to[i], from[i], bytes[i]));
  return copy_batch(call, stream, std::move(transfers), static_cast<AccessOrder>(order));
}

Result batch_3d(Call& call, Default meaning, const void* handle, std::size_t count, const BatchCopy* copies) {
  MADE_UP_STREAM(stream, handle);
  if (count == 0 || !copies || !is_order(copies[0].order)) return kInvalidValue;
  std::vector<Transfer> transfers(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t unit = unit_of(copies[i]);
    transfers[i].width = copies[i].width * unit;
    transfers[i].height = copies[i].height;
    transfers[i].depth = copies[i].depth;
    if (!describe_operand(copies[i].source, copies[i], unit, transfers[i].from) ||
        !describe_operand(copies[i].target, copies[i], unit, transfers[i].to))
      return kInvalidValue;
  }
  return copy_batch(call, stream, std::move(transfers), static_cast<AccessOrder>(copies[0].order));
}

Result copy_peer(Call& call, Default meaning, const void* handle, const PeerCopy* shape, bool async) {
  MADE_UP_STREAM(stream, handle);
  Transfer transfer;
  if (!shape || !describe(*reinterpret_cast<const Copy3D*>(shape), transfer)) return kInvalidValue;
  return copy(call, stream, transfer, async);
}

}  // namespace

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

MADE_UP_PAIR(cuMemcpy3DBatchAsync, _ptsz,
             (std::size_t count, BatchCopy* copies, std::size_t* failed, unsigned long long flags,
              Handle stream),
             (count, copies, failed, flags, stream)) {
  (void)failed, (void)flags;
  return batch_3d(call, meaning, stream, count, copies);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy3DBatchAsync_v2, _ptsz,
             (std::size_t count, BatchCopy* copies, unsigned long long flags, Handle stream),
             (count, copies, flags, stream)) {
  (void)flags;
  return batch_3d(call, meaning, stream, count, copies);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpyWithAttributesAsync, _ptsz,
             (DevicePointer to, DevicePointer from, std::size_t bytes, CopyAttributes* attributes,
              Handle stream),
             (to, from, bytes, attributes, stream)) {
  return batch(call, meaning, stream, &to, &from, &bytes, 1, attributes, 1);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy3DWithAttributesAsync, _ptsz,
             (BatchCopy * copy, unsigned long long flags, Handle stream), (copy, flags, stream)) {
  (void)flags;
  return batch_3d(call, meaning, stream, 1, copy);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy3DPeer, _ptds, (const PeerCopy* shape), (shape)) {
  return copy_peer(call, meaning, nullptr, shape, false);
}
MADE_UP_END

MADE_UP_PAIR(cuMemcpy3DPeerAsync, _ptsz, (const PeerCopy* shape, Handle stream), (shape, stream)) {
  return copy_peer(call, meaning, stream, shape, true);
}
MADE_UP_END

extern "C" {

// The first functions of these names take device addresses of 32 bits, which nothing has here.
Result cuMemcpyHtoD(unsigned, const void*, unsigned) {
  MADE_UP_CALL(Need::kContext);
  return kInvalidValue;
}
Result cuMemcpyDtoH(void*, unsigned, unsigned) {
  MADE_UP_CALL(Need::kContext);
  return kInvalidValue;
}
Result cuMemcpyHtoDAsync(unsigned, const void*, unsigned, Handle) {
  MADE_UP_CALL(Need::kContext);
  return kInvalidValue;
}
Result cuMemcpyDtoHAsync(void*, unsigned, unsigned, Handle) {
  MADE_UP_CALL(Need::kContext);
  return kInvalidValue;
}

/// A copy that a newer driver brings and nobody knows yet, from version 13010 on.
Result cuMemcpyOfTomorrow(DevicePointer to, DevicePointer from, std::size_t bytes) {
  MADE_UP_CALL(Need::kContext);
  return copy(call, call.stream(nullptr, Default::kLegacy), Transfer::linear(to, from, bytes), false);
}

}  // extern "C"
