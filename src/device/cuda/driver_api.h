// The part of NVIDIA's driver interface that Pinion calls itself. Types and constants are stated here,
// because neither building nor running needs CUDA's headers or libraries: the program brings libcuda.so.1,
// and the front finds its functions (intercept/cuda).
//
// Owns nothing. A Driver is filled once, before anybody reads it; its functions may be called by any thread,
// never from memory hooks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion::cuda {

using Result = int;
using DevicePointer = unsigned long long;
using Ordinal = int;  ///< CUdevice
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kAlreadyRegistered = 712;
inline constexpr Result kNotRegistered = 713;
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kNotPermitted = 800;
inline constexpr Result kCaptureUnsupported = 900;

/// Whether the error stays: the context, or the whole driver, is lost to the process (ECC, faults of kernels,
/// a destroyed context, the driver's own end).
constexpr bool is_sticky(Result result) {
  constexpr Result kEccUncorrectable = 214, kNvlinkUncorrectable = 220, kLaunchTimeout = 702;
  constexpr Result kContextIsDestroyed = 709, kAssert = 710, kHardwareStackError = 714;
  return result == kDeinitialized || result == kEccUncorrectable || result == kNvlinkUncorrectable ||
         result == kIllegalAddress || result == kLaunchTimeout || result == kContextIsDestroyed ||
         result == kAssert || (result >= kHardwareStackError && result <= kLaunchFailed);
}

/// An asynchronous copy of pageable memory to the GPU of up to so many bytes returns once they are read, even
/// while its stream is held back: measured (evidence-gpu.md). CUDA promises it for 64 KiB.
inline constexpr std::size_t kReadAtOnce = std::size_t{2} << 20;

/// Flags of cuMemHostRegister.
inline constexpr unsigned kRegisterPortable = 1;
inline constexpr unsigned kRegisterReadOnly = 8;
/// Flags of cuEventCreate.
inline constexpr unsigned kEventBlocking = 1, kEventNoTiming = 2;
/// A flag of cuStreamGetFlags.
inline constexpr unsigned kStreamNonBlocking = 1;
/// Modes of cuThreadExchangeStreamCaptureMode.
inline constexpr int kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2;
/// Answers of cuStreamIsCapturing.
inline constexpr int kCaptureNone = 0;
/// Attributes of pointers.
inline constexpr int kAttributeContext = 1, kAttributeMemoryType = 2, kAttributeIsManaged = 8,
                     kAttributeRangeStart = 11, kAttributeRangeSize = 12;
/// The NUMA node next to a device. Drivers before 12.2 do not know this attribute.
inline constexpr int kAttributeHostNumaNode = 134;
inline constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2;

/// The handles of the legacy stream and of the per-thread default stream. A null stream is one of the two,
/// as the version of the called function says.
inline const Stream kLegacyStream = reinterpret_cast<Stream>(1);
inline const Stream kThreadStream = reinterpret_cast<Stream>(2);

/// The description of an array (CUDA_ARRAY3D_DESCRIPTOR).
struct ArrayShape {
  std::size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

/// The driver's functions that Pinion calls: the member, the symbol, the parameters.
#define PINION_CUDA_DRIVER_CALLS(X)                                                           \
  X(context_current, "cuCtxGetCurrent", (Context*))                                           \
  X(context_push, "cuCtxPushCurrent_v2", (Context))                                           \
  X(context_pop, "cuCtxPopCurrent_v2", (Context*))                                            \
  X(context_device, "cuCtxGetDevice", (Ordinal*))                                             \
  X(context_create, "cuCtxCreate_v2", (Context*, unsigned, Ordinal))                          \
  X(memory_info, "cuMemGetInfo_v2", (std::size_t*, std::size_t*))                             \
  X(host_register, "cuMemHostRegister_v2", (void*, std::size_t, unsigned))                    \
  X(host_unregister, "cuMemHostUnregister", (void*))                                          \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                       \
  X(pointer_attribute, "cuPointerGetAttribute", (void*, int, DevicePointer))                  \
  X(stream_is_capturing, "cuStreamIsCapturing", (Stream, int*))                               \
  X(stream_query, "cuStreamQuery", (Stream))                                                  \
  X(stream_context, "cuStreamGetCtx", (Stream, Context*))                                     \
  X(stream_flags, "cuStreamGetFlags", (Stream, unsigned*))                                    \
  X(event_create, "cuEventCreate", (Event*, unsigned))                                        \
  X(event_record, "cuEventRecord", (Event, Stream))                                           \
  X(event_query, "cuEventQuery", (Event))                                                     \
  X(event_synchronize, "cuEventSynchronize", (Event))                                         \
  X(event_destroy, "cuEventDestroy_v2", (Event))                                              \
  X(copy_in_async, "cuMemcpyHtoDAsync_v2", (DevicePointer, const void*, std::size_t, Stream)) \
  X(copy_out_async, "cuMemcpyDtoHAsync_v2", (void*, DevicePointer, std::size_t, Stream))

/// Calls that older drivers lack: null there.
#define PINION_CUDA_OPTIONAL_CALLS(X)                                                        \
  X(context_id, "cuCtxGetId", (Context, unsigned long long*))                                \
  X(device_attribute, "cuDeviceGetAttribute", (int*, int, Ordinal))                          \
  X(array_shape, "cuArray3DGetDescriptor_v2", (ArrayShape*, void*))                          \
  X(address_range, "cuMemGetAddressRange_v2", (DevicePointer*, std::size_t*, DevicePointer)) \
  X(host_flags, "cuMemHostGetFlags", (unsigned*, void*))                                     \
  X(host_device_pointer, "cuMemHostGetDevicePointer_v2", (DevicePointer*, void*, unsigned))  \
  X(pointer_attributes, "cuPointerGetAttributes", (unsigned, const int*, void**, DevicePointer))

struct Driver {
#define PINION_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  PINION_CUDA_DRIVER_CALLS(PINION_CUDA_MEMBER)
  PINION_CUDA_OPTIONAL_CALLS(PINION_CUDA_MEMBER)
#undef PINION_CUDA_MEMBER
};

/// Fills in a Driver by `find(symbol)`, which returns null for a missing one. Returns the first symbol that
/// is needed and missing; null: the driver is complete.
template <class Find>
const char* fill(Driver& driver, Find&& find) {
  const char* missing = nullptr;
#define PINION_CUDA_FILL(member, symbol, parameters)                    \
  driver.member = reinterpret_cast<Result(*) parameters>(find(symbol)); \
  if (driver.member == nullptr && missing == nullptr) missing = symbol;
  PINION_CUDA_DRIVER_CALLS(PINION_CUDA_FILL)
#undef PINION_CUDA_FILL
#define PINION_CUDA_FILL(member, symbol, parameters) \
  driver.member = reinterpret_cast<Result(*) parameters>(find(symbol));
  PINION_CUDA_OPTIONAL_CALLS(PINION_CUDA_FILL)
#undef PINION_CUDA_FILL
  return missing;
}

/// Lets the calling thread make calls that a capture forbids, and ends that in its destructor: the program's
/// captures stay valid (evidence-gpu.md).
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) { driver_.exchange_capture_mode(&mode_); }
  ~RelaxedCapture() { driver_.exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = kCaptureRelaxed;
};

}  // namespace pinion::cuda
