// Owns the program's view of the CUDA driver: the few types, constants and calls that the facts need, looked
// up in libcuda.so.1 at run time, so that the program builds without CUDA headers. Only children call it: the
// parent process never loads the driver, because a process may not fork after cuInit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion::gpu {

using Result = int;
using Device = int;
using DevicePointer = unsigned long long;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;
using GraphExec = struct GraphExecTag*;
using HostFunction = void (*)(void*);

inline constexpr Result kSuccess = 0;
inline constexpr Result kNotReady = 600;
inline constexpr unsigned kPortable = 1, kDeviceMap = 2, kReadOnly = 8;
inline constexpr unsigned kNonBlocking = 1;
inline constexpr unsigned kEventBlocking = 1, kEventNoTiming = 2;
inline constexpr unsigned kWaitUntilAtLeast = 0;
inline constexpr int kMemoryTypeHost = 1, kMemoryTypeDevice = 2;
inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
/// The handles of the legacy stream and of the per-thread default stream.
inline const Stream kLegacyStream = reinterpret_cast<Stream>(1);
inline const Stream kThreadStream = reinterpret_cast<Stream>(2);

/// CUDA_MEMCPY2D_v2.
struct Copy2D {
  std::size_t source_x = 0, source_y = 0;
  int source_type = 0;
  const void* source_host = nullptr;
  DevicePointer source_device = 0;
  void* source_array = nullptr;
  std::size_t source_pitch = 0;
  std::size_t target_x = 0, target_y = 0;
  int target_type = 0;
  void* target_host = nullptr;
  DevicePointer target_device = 0;
  void* target_array = nullptr;
  std::size_t target_pitch = 0;
  std::size_t width = 0, height = 0;
};

/// CUDA_MEMCPY3D_v2.
struct Copy3D {
  std::size_t source_x = 0, source_y = 0, source_z = 0, source_lod = 0;
  int source_type = 0;
  const void* source_host = nullptr;
  DevicePointer source_device = 0;
  void* source_array = nullptr;
  void* reserved0 = nullptr;
  std::size_t source_pitch = 0, source_height = 0;
  std::size_t target_x = 0, target_y = 0, target_z = 0, target_lod = 0;
  int target_type = 0;
  void* target_host = nullptr;
  DevicePointer target_device = 0;
  void* target_array = nullptr;
  void* reserved1 = nullptr;
  std::size_t target_pitch = 0, target_height = 0;
  std::size_t width = 0, height = 0, depth = 0;
};

/// CUmemcpyAttributes: how cuMemcpyBatchAsync may access its sources.
struct CopyAttributes {
  int source_access_order = 0;
  int source_place[2] = {0, 0};
  int target_place[2] = {0, 0};
  unsigned flags = 0;
};

// A list of the calls: the member, the driver's symbol, the parameters.
#define PINION_GPU_DRIVER_CALLS(X)                                                                   \
  X(init, "cuInit", (unsigned))                                                                      \
  X(driver_version, "cuDriverGetVersion", (int*))                                                    \
  X(device_get, "cuDeviceGet", (Device*, int))                                                       \
  X(device_name, "cuDeviceGetName", (char*, int, Device))                                            \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, Device))                                   \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (Context*, Device))                                  \
  X(primary_reset, "cuDevicePrimaryCtxReset_v2", (Device))                                           \
  X(context_create, "cuCtxCreate_v2", (Context*, unsigned, Device))                                  \
  X(context_destroy, "cuCtxDestroy_v2", (Context))                                                   \
  X(context_set, "cuCtxSetCurrent", (Context))                                                       \
  X(context_id, "cuCtxGetId", (Context, unsigned long long*))                                        \
  X(memory_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                                    \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                              \
  X(context_synchronize, "cuCtxSynchronize", ())                                                     \
  X(module_load, "cuModuleLoadData", (Module*, const void*))                                         \
  X(module_function, "cuModuleGetFunction", (Function*, Module, const char*))                        \
  X(launch, "cuLaunchKernel",                                                                        \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, \
     void**))                                                                                        \
  X(launch_host, "cuLaunchHostFunc", (Stream, HostFunction, void*))                                  \
  X(allocate, "cuMemAlloc_v2", (DevicePointer*, std::size_t))                                        \
  X(free_device, "cuMemFree_v2", (DevicePointer))                                                    \
  X(allocate_host, "cuMemHostAlloc", (void**, std::size_t, unsigned))                                \
  X(free_host, "cuMemFreeHost", (void*))                                                             \
  X(host_register, "cuMemHostRegister_v2", (void*, std::size_t, unsigned))                           \
  X(host_unregister, "cuMemHostUnregister", (void*))                                                 \
  X(host_flags, "cuMemHostGetFlags", (unsigned*, void*))                                             \
  X(host_device_pointer, "cuMemHostGetDevicePointer_v2", (DevicePointer*, void*, unsigned))          \
  X(address_range, "cuMemGetAddressRange_v2", (DevicePointer*, std::size_t*, DevicePointer))         \
  X(pointer_attribute, "cuPointerGetAttribute", (void*, int, DevicePointer))                         \
  X(copy_in, "cuMemcpyHtoD_v2", (DevicePointer, const void*, std::size_t))                           \
  X(copy_out, "cuMemcpyDtoH_v2", (void*, DevicePointer, std::size_t))                                \
  X(copy_in_async, "cuMemcpyHtoDAsync_v2", (DevicePointer, const void*, std::size_t, Stream))        \
  X(copy_out_async, "cuMemcpyDtoHAsync_v2", (void*, DevicePointer, std::size_t, Stream))             \
  X(copy_2d, "cuMemcpy2DUnaligned_v2", (const Copy2D*))                                              \
  X(copy_2d_async, "cuMemcpy2DAsync_v2", (const Copy2D*, Stream))                                    \
  X(set_bytes, "cuMemsetD8_v2", (DevicePointer, unsigned char, std::size_t))                         \
  X(set_bytes_async, "cuMemsetD8Async", (DevicePointer, unsigned char, std::size_t, Stream))         \
  X(stream_create, "cuStreamCreate", (Stream*, unsigned))                                            \
  X(stream_synchronize, "cuStreamSynchronize", (Stream))                                             \
  X(stream_query, "cuStreamQuery", (Stream))                                                         \
  X(stream_wait_value, "cuStreamWaitValue32_v2", (Stream, DevicePointer, std::uint32_t, unsigned))   \
  X(event_create, "cuEventCreate", (Event*, unsigned))                                               \
  X(event_record, "cuEventRecord", (Event, Stream))                                                  \
  X(event_synchronize, "cuEventSynchronize", (Event))                                                \
  X(event_query, "cuEventQuery", (Event))                                                            \
  X(begin_capture, "cuStreamBeginCapture_v2", (Stream, int))                                         \
  X(end_capture, "cuStreamEndCapture", (Stream, Graph*))                                             \
  X(is_capturing, "cuStreamIsCapturing", (Stream, int*))                                             \
  X(graph_create, "cuGraphCreate", (Graph*, unsigned))                                               \
  X(graph_add_copy, "cuGraphAddMemcpyNode",                                                          \
    (GraphNode*, Graph, const GraphNode*, std::size_t, const Copy3D*, Context))                      \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExec*, Graph, unsigned long long))       \
  X(graph_launch, "cuGraphLaunch", (GraphExec, Stream))                                              \
  X(get_proc_address, "cuGetProcAddress_v2", (const char*, void**, int, std::uint64_t, int*))

/// Calls that not every driver has: null where this one lacks them.
#define PINION_GPU_OPTIONAL_CALLS(X)                                                                        \
  X(copy_batch_v1, "cuMemcpyBatchAsync",                                                                    \
    (DevicePointer*, DevicePointer*, std::size_t*, std::size_t, CopyAttributes*, std::size_t*, std::size_t, \
     std::size_t*, Stream))                                                                                 \
  X(copy_batch_v2, "cuMemcpyBatchAsync_v2",                                                                 \
    (DevicePointer*, DevicePointer*, std::size_t*, std::size_t, CopyAttributes*, std::size_t*, std::size_t, \
     Stream))                                                                                               \
  X(device_resource, "cuDeviceGetDevResource", (Device, void*, int))                                        \
  X(describe_resource, "cuDevResourceGenerateDesc", (void**, void*, unsigned))                              \
  X(green_create, "cuGreenCtxCreate", (void**, void*, Device, unsigned))                                    \
  X(context_from_green, "cuCtxFromGreenCtx", (Context*, void*))

struct Driver {
#define PINION_GPU_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  PINION_GPU_DRIVER_CALLS(PINION_GPU_MEMBER)
  PINION_GPU_OPTIONAL_CALLS(PINION_GPU_MEMBER)
#undef PINION_GPU_MEMBER
  void* library = nullptr;
};

/// Loads libcuda.so.1 on the first call. Ends the process with status 77 and one line where there is none.
const Driver& driver();

}  // namespace pinion::gpu
