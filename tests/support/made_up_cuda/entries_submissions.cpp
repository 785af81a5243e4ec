// Work for streams that is no copy, and work that does nothing here but has its place in a stream.
#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/entry.h"
#include "support/made_up_cuda/submissions.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

using HostFunction = void (*)(void*);

Result run_inside(const std::function<void()>& body) {
  ++self().in_callback;
  body();
  --self().in_callback;
  return kSuccess;
}

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  Handle stream;
  const void* attributes;
  unsigned attribute_count;
};

/// CUstreamBatchMemOpParams.
union BatchOperation {
  std::uint64_t words[6];
  struct {
    int kind;
    DevicePointer address;
    std::uint64_t value;
    unsigned flags;
  } operation;
};

Result batch(Call& call, const StreamPointer& stream, unsigned count, const BatchOperation* operations) {
  enum Kind { kWait32 = 1, kWrite32 = 2, kWait64 = 4, kWrite64 = 5 };
  for (unsigned i = 0; i < count; ++i) {
    const auto& one = operations[i].operation;
    const Word word{one.address, one.value, one.kind == kWait64 || one.kind == kWrite64};
    const bool waits = one.kind == kWait32 || one.kind == kWait64;
    if (!waits && one.kind != kWrite32 && one.kind != kWrite64) return kNotSupported;
    const Result result =
        waits ? wait_for_word(call, stream, word, one.flags) : write_word(call, stream, word);
    if (result) return result;
  }
  return kSuccess;
}

}  // namespace

MADE_UP_PAIR(cuLaunchHostFunc, _ptsz, (Handle handle, HostFunction function, void* data),
             (handle, function, data)) {
  MADE_UP_STREAM(stream, handle);
  if (!function) return kInvalidValue;
  return put(call, stream, [=] { return run_inside([=] { function(data); }); });
}
MADE_UP_END

MADE_UP_PAIR(cuLaunchHostFunc_v2, _ptsz, (Handle handle, HostFunction function, void* data, unsigned mode),
             (handle, function, data, mode)) {
  (void)mode;
  MADE_UP_STREAM(stream, handle);
  if (!function) return kInvalidValue;
  return put(call, stream, [=] { return run_inside([=] { function(data); }); });
}
MADE_UP_END

MADE_UP_PAIR(cuStreamAddCallback, _ptsz,
             (Handle handle, void (*function)(Handle, Result, void*), void* data, unsigned flags),
             (handle, function, data, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  if (!function) return kInvalidValue;
  return put(call, stream, [=] { return run_inside([=] { function(handle, kSuccess, data); }); });
}
MADE_UP_END

MADE_UP_PAIR(cuLaunchKernel, _ptsz,
             (Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared, Handle handle, void** parameters,
              void** extra),
             (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, handle, parameters,
              extra)) {
  (void)shared, (void)extra;
  MADE_UP_STREAM(stream, handle);
  if (grid_x * grid_y * grid_z * block_x * block_y * block_z == 0) return kInvalidValue;
  return launch_kernel(call, stream, function, parameters);
}
MADE_UP_END

MADE_UP_PAIR(cuLaunchCooperativeKernel, _ptsz,
             (Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
              unsigned block_y, unsigned block_z, unsigned shared, Handle handle, void** parameters),
             (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, handle, parameters)) {
  (void)shared;
  MADE_UP_STREAM(stream, handle);
  if (grid_x * grid_y * grid_z * block_x * block_y * block_z == 0) return kInvalidValue;
  return launch_kernel(call, stream, function, parameters);
}
MADE_UP_END

MADE_UP_PAIR(cuLaunchKernelEx, _ptsz,
             (const LaunchConfig* config, Handle function, void** parameters, void** extra),
             (config, function, parameters, extra)) {
  (void)extra;
  if (!config) return kInvalidValue;
  MADE_UP_STREAM(stream, config->stream);
  return launch_kernel(call, stream, function, parameters);
}
MADE_UP_END

extern "C" {

// The oldest launches set their parameters by other calls: their kernels have none here.
Result cuLaunch(Handle function) {
  MADE_UP_CALL(Need::kContext);
  return launch_kernel(call, call.stream(nullptr, Default::kLegacy), function, nullptr);
}
Result cuLaunchGrid(Handle function, int, int) {
  MADE_UP_CALL(Need::kContext);
  return launch_kernel(call, call.stream(nullptr, Default::kLegacy), function, nullptr);
}
Result cuLaunchGridAsync(Handle function, int, int, Handle stream) {
  MADE_UP_CALL(Need::kContext);
  const StreamPointer known = call.stream(stream, Default::kLegacy);
  return known ? launch_kernel(call, known, function, nullptr) : kInvalidHandle;
}

}  // extern "C"

MADE_UP_PAIR(cuEventRecord, _ptsz, (Handle event, Handle handle), (event, handle)) {
  MADE_UP_STREAM(stream, handle);
  return record_event(call, stream, event);
}
MADE_UP_END

MADE_UP_PAIR(cuEventRecordWithFlags, _ptsz, (Handle event, Handle handle, unsigned flags),
             (event, handle, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  return record_event(call, stream, event);
}
MADE_UP_END

/// Defines a version of the waits and writes for words.
#define MADE_UP_WORDS(bits, version, type, wide)                                   \
  MADE_UP_PAIR(cuStreamWaitValue##bits##version, _ptsz,                            \
               (Handle handle, DevicePointer address, type value, unsigned flags), \
               (handle, address, value, flags)) {                                  \
    MADE_UP_STREAM(stream, handle);                                                \
    return wait_for_word(call, stream, {address, value, wide}, flags);             \
  }                                                                                \
  MADE_UP_END                                                                      \
  MADE_UP_PAIR(cuStreamWriteValue##bits##version, _ptsz,                           \
               (Handle handle, DevicePointer address, type value, unsigned flags), \
               (handle, address, value, flags)) {                                  \
    (void)flags;                                                                   \
    MADE_UP_STREAM(stream, handle);                                                \
    return write_word(call, stream, {address, value, wide});                       \
  }                                                                                \
  MADE_UP_END

MADE_UP_WORDS(32, , std::uint32_t, false)
MADE_UP_WORDS(32, _v2, std::uint32_t, false)
MADE_UP_WORDS(64, , std::uint64_t, true)
MADE_UP_WORDS(64, _v2, std::uint64_t, true)

MADE_UP_PAIR(cuStreamBatchMemOp, _ptsz,
             (Handle handle, unsigned count, const BatchOperation* operations, unsigned flags),
             (handle, count, operations, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  return batch(call, stream, count, operations);
}
MADE_UP_END

MADE_UP_PAIR(cuStreamBatchMemOp_v2, _ptsz,
             (Handle handle, unsigned count, const BatchOperation* operations, unsigned flags),
             (handle, count, operations, flags)) {
  (void)flags;
  MADE_UP_STREAM(stream, handle);
  return batch(call, stream, count, operations);
}
MADE_UP_END

MADE_UP_PAIR(cuMemAllocAsync, _ptsz, (DevicePointer * device, std::size_t bytes, Handle handle),
             (device, bytes, handle)) {
  MADE_UP_STREAM(stream, handle);
  if (!device || bytes == 0) return kInvalidValue;
  *device = world().memory.allocate(bytes, stream->context->id);
  return *device ? put(call, stream, nullptr) : kOutOfMemory;
}
MADE_UP_END

MADE_UP_PAIR(cuMemAllocFromPoolAsync, _ptsz,
             (DevicePointer * device, std::size_t bytes, Handle pool, Handle handle),
             (device, bytes, pool, handle)) {
  (void)pool;
  return cuMemAllocAsync_body(call, meaning, device, bytes, handle);
}
MADE_UP_END

MADE_UP_PAIR(cuMemFreeAsync, _ptsz, (DevicePointer device, Handle handle), (device, handle)) {
  MADE_UP_STREAM(stream, handle);
  const auto allocation = world().memory.allocation(device);
  if (!allocation || allocation->begin != device) return kInvalidValue;
  return put(call, stream, [device] {
    const Lock lock(world().mutex);
    world().memory.free(device);
    return kSuccess;
  });
}
MADE_UP_END
