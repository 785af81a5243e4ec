// A CUDA driver whose functions do nothing and succeed, but for the one that is armed (stub.h). It knows one
// context and one piece of device memory, and which host memory is pinned: so it can tell how a copy came.
// cuda_stub_calls.cpp has the functions of the front's table that say nothing.
#include "cuda_stub.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "device/cuda/driver_api.h"

using namespace pinion::cuda;  // NOLINT(google-build-using-namespace): the driver's own names

const char* ways_out_armed = nullptr;
const char* ways_out_armed_too = nullptr;
int ways_out_calls_too = 0;
void (*ways_out_leave)() = nullptr;
thread_local bool ways_out_here = false;

namespace {

using Address = std::uintptr_t;

std::mutex g_mutex;
std::map<Address, Address> g_pinned;
std::atomic<int> g_events{0};
std::atomic<unsigned long long> g_registered_copies{0}, g_staged_copies{0};
thread_local int t_capture_mode = kCaptureGlobal;
thread_local bool t_recorded = false;
char g_allocated[1 << 16];

const auto kContext = reinterpret_cast<Context>(0x1000);

/// The bytes of the pinned range around the address; 0: it is pageable.
std::size_t pinned_around(Address address) {
  const std::lock_guard lock(g_mutex);
  const auto behind = g_pinned.upper_bound(address);
  if (behind == g_pinned.begin()) return 0;
  const auto [begin, end] = *std::prev(behind);
  return end > address ? end - begin : 0;
}

Result pin(void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<Address>(memory);
  const std::lock_guard lock(g_mutex);
  const auto behind = g_pinned.lower_bound(begin + bytes);
  if (behind != g_pinned.begin() && std::prev(behind)->second > begin) return kAlreadyRegistered;
  g_pinned[begin] = begin + bytes;
  return kSuccess;
}

Result unpin(void* memory) {
  const std::lock_guard lock(g_mutex);
  return g_pinned.erase(reinterpret_cast<Address>(memory)) != 0 ? kSuccess : kNotRegistered;
}

/// Counts a copy of host memory. A ring of Pinion's is larger than any memory of the program's.
Result copied(const void* host) {
  const std::size_t bytes = pinned_around(reinterpret_cast<Address>(host));
  if (bytes > kDeviceBytes) g_staged_copies += 1;
  if (bytes != 0 && bytes <= kDeviceBytes) g_registered_copies += 1;
  return kSuccess;
}

bool is_on_device(DevicePointer pointer) { return pointer >= kDevice && pointer < kDevice + kDeviceBytes; }

Result attribute(void* value, int attribute, DevicePointer pointer) {
  const bool on_device = is_on_device(pointer);
  if (!on_device && pinned_around(pointer) == 0) return kInvalidValue;
  switch (attribute) {
    case kAttributeMemoryType:
      *static_cast<unsigned*>(value) = on_device ? kMemoryTypeDevice : kMemoryTypeHost;
      return kSuccess;
    case kAttributeRangeStart:
      *static_cast<DevicePointer*>(value) = kDevice;
      return kSuccess;
    case kAttributeRangeSize:
      *static_cast<std::size_t*>(value) = kDeviceBytes;
      return kSuccess;
    default:
      *static_cast<unsigned*>(value) = 0;
      return kSuccess;
  }
}

}  // namespace

CudaFigures cuda_figures() { return {g_registered_copies, g_staged_copies, g_events, t_capture_mode}; }

// ---- the functions that have something to say ----

#define SAYS(name) leave_if_armed(#name)

extern "C" {

Result cuMemcpyHtoD_v2(DevicePointer, const void* host, std::size_t) {
  SAYS(cuMemcpyHtoD_v2);
  return copied(host);
}
Result cuMemcpyHtoDAsync_v2(DevicePointer, const void* host, std::size_t, Stream) {
  SAYS(cuMemcpyHtoDAsync_v2);
  return copied(host);
}
Result cuMemcpyDtoHAsync_v2(void* host, DevicePointer, std::size_t, Stream) {
  SAYS(cuMemcpyDtoHAsync_v2);
  return copied(host);
}
Result cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  SAYS(cuMemHostRegister_v2);
  return pin(memory, bytes);
}
Result cuMemHostRegister(void* memory, std::size_t bytes, unsigned) {
  SAYS(cuMemHostRegister);
  return pin(memory, bytes);
}
Result cuMemHostUnregister(void* memory) {
  SAYS(cuMemHostUnregister);
  return unpin(memory);
}
Result cuMemHostAlloc(void** memory, std::size_t, unsigned) {
  SAYS(cuMemHostAlloc);
  return *memory = g_allocated, kSuccess;
}
Result cuMemAllocHost_v2(void** memory, std::size_t) {
  SAYS(cuMemAllocHost_v2);
  return *memory = g_allocated, kSuccess;
}
Result cuPointerGetAttribute(void* value, int wanted, DevicePointer pointer) {
  SAYS(cuPointerGetAttribute);
  return attribute(value, wanted, pointer);
}
Result cuMemcpyOfTheFuture(void*, const void*);
Result cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, int*) {
  SAYS(cuGetProcAddress_v2);
  const bool is_new = std::strcmp(name, "cuMemcpyOfTheFuture") == 0;
  *function =
      is_new ? reinterpret_cast<void*>(&cuMemcpyOfTheFuture) : cuda_function(name, version, (flags & 2) != 0);
  return *function != nullptr ? kSuccess : kInvalidValue;
}
Result cuGetProcAddress(const char* name, void** function, int version, std::uint64_t) {
  SAYS(cuGetProcAddress);
  *function = cuda_function(name, version, false);
  return *function != nullptr ? kSuccess : kInvalidValue;
}

Result cuCtxGetCurrent(Context* context) {
  SAYS(cuCtxGetCurrent);
  return *context = kContext, kSuccess;
}
Result cuCtxPushCurrent_v2(Context) { return kSuccess; }
Result cuCtxPopCurrent_v2(Context* context) { return *context = kContext, kSuccess; }
Result cuCtxGetDevice(Ordinal* device) { return *device = 0, kSuccess; }
Result cuCtxCreate_v2(Context* context, unsigned, Ordinal) {
  return *context = reinterpret_cast<Context>(0x2000), kSuccess;
}
Result cuCtxGetId(Context, unsigned long long* id) {
  SAYS(cuCtxGetId);
  return *id = 7, kSuccess;
}
Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return *free = *total = std::size_t{64} << 30, kSuccess;
}
Result cuThreadExchangeStreamCaptureMode(int* mode) { return std::swap(*mode, t_capture_mode), kSuccess; }
Result cuStreamIsCapturing(Stream, int* status) {
  SAYS(cuStreamIsCapturing);
  return *status = kCaptureNone, kSuccess;
}
Result cuStreamQuery(Stream) {
  SAYS(cuStreamQuery);
  return kSuccess;
}
Result cuStreamGetCtx(Stream, Context* context) {
  SAYS(cuStreamGetCtx);
  return *context = kContext, kSuccess;
}
Result cuStreamGetFlags(Stream, unsigned* flags) {
  SAYS(cuStreamGetFlags);
  return *flags = 0, kSuccess;
}
Result cuEventCreate(Event* event, unsigned) {
  SAYS(cuEventCreate);
  g_events += 1;
  return *event = reinterpret_cast<Event>(0x3000), kSuccess;
}
/// The first question after a record comes too early.
Result cuEventRecord(Event, Stream) {
  SAYS(cuEventRecord);
  return t_recorded = true, kSuccess;
}
Result cuEventQuery(Event) {
  SAYS(cuEventQuery);
  return std::exchange(t_recorded, false) ? kNotReady : kSuccess;
}
Result cuEventSynchronize(Event) {
  SAYS(cuEventSynchronize);
  return kSuccess;
}
Result cuEventDestroy_v2(Event) {
  g_events -= 1;
  return kSuccess;
}
Result cuMemcpyOfTheFuture(void*, const void*) {
  SAYS(cuMemcpyOfTheFuture);
  return kSuccess;
}
}
