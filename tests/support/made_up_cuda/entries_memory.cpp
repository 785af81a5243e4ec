// Device memory, registered host memory, and what pointers are.
#include <sys/mman.h>

#include <cstring>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/contexts.h"
#include "support/made_up_cuda/entry.h"
#include "support/made_up_cuda/registrations.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C
using pinion::Range;

namespace {

constexpr std::size_t kPage = 4096;

Result allocate_host(Call& call, void** memory, std::size_t bytes, unsigned flags) {
  if (const Result refused = forbid_in_captures()) return refused;
  if (!memory || bytes == 0) return kInvalidValue;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  void* const made = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return kOutOfMemory;
  if (const Result refused = register_memory(call, Range::of(made, bytes), flags, true)) {
    ::munmap(made, rounded);
    return refused;
  }
  *memory = made;
  return kSuccess;
}

enum Attribute {
  kContext = 1,
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeStart = 11,
  kRangeSize = 12,
  kMapped = 13,
  kAccessFlags = 16
};

/// What the driver knows of an address; nothing, if it is neither the device's nor registered.
struct Known {
  bool device = false;
  Range range;
  std::uint64_t context = 0;
};
std::optional<Known> known(DevicePointer pointer) {
  if (const auto allocation = world().memory.allocation(pointer))
    return Known{true, *allocation, world().memory.context_of(pointer)};
  if (const RegistrationPointer registration = registration_of(pointer))
    return Known{false, registration->range, registration->context};
  return std::nullopt;
}

void* context_handle(std::uint64_t id) {
  for (const ContextPointer& context : world().all_contexts) {
    if (context->id == id) return context->handle;
  }
  return nullptr;
}

/// Writes one attribute, of the size that it has. False: unknown.
bool write_attribute(void* data, int attribute, DevicePointer pointer, const Known& is) {
  const auto put = [data](auto value) { std::memcpy(data, &value, sizeof value); };
  switch (attribute) {
    case kContext:
      put(context_handle(is.context));
      return true;
    case kMemoryType:
      put(static_cast<unsigned>(is.device ? pinion::gpu::kMemoryTypeDevice : pinion::gpu::kMemoryTypeHost));
      return true;
    case kDevicePointer:
      put(pointer);
      return true;
    case kHostPointer:
      if (is.device) return false;
      put(pointer);
      return true;
    case kBufferId:
      put(static_cast<unsigned long long>(is.range.begin));
      return true;
    case kIsManaged:
      put(static_cast<unsigned char>(0));
      return true;
    case kDeviceOrdinal:
      put(0);
      return true;
    case kRangeStart:
      put(static_cast<DevicePointer>(is.range.begin));
      return true;
    case kRangeSize:
      put(is.range.bytes());
      return true;
    case kMapped:
      put(static_cast<unsigned char>(1));
      return true;
    case kAccessFlags:
      put(3U);
      return true;
    default:
      return false;
  }
}

/// Sets an attribute of a pointer that the driver does not know to nothing.
void clear_attribute(void* data, int attribute) {
  const bool byte = attribute == kIsManaged || attribute == kMapped;
  const bool word = attribute == kMemoryType || attribute == kAccessFlags || attribute == kDeviceOrdinal;
  std::memset(data, 0, byte ? 1 : word ? 4 : 8);
  if (attribute == kDeviceOrdinal) std::memset(data, 0xff, 4);
}

}  // namespace

extern "C" {

Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  MADE_UP_CALL(Need::kContext);
  if (free) *free = world().memory.free_bytes();
  if (total) *total = DeviceMemory::kTotal;
  return kSuccess;
}

Result cuMemAlloc_v2(DevicePointer* device, std::size_t bytes) {
  MADE_UP_CALL(Need::kContext);
  if (!device || bytes == 0) return kInvalidValue;
  const DevicePointer made = world().memory.allocate(bytes, call.context()->id);
  if (!made) return kOutOfMemory;
  *device = made;
  return kSuccess;
}

Result cuMemFree_v2(DevicePointer device) {
  MADE_UP_CALL(Need::kContext);
  if (device == 0) return kSuccess;
  const auto allocation = world().memory.allocation(device);
  if (!allocation || allocation->begin != device) return kInvalidValue;
  // It waits for all work of the context, which may use the memory.
  const ContextPointer context = call.context();
  const std::uint64_t last = context->works;
  wait(call.lock(), call.name(), [&] { return idle_up_to(*context, last); });
  return world().memory.free(device) ? context->sticky : kInvalidValue;
}

Result cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned flags) {
  MADE_UP_CALL(Need::kContext);
  if (const Result refused = forbid_in_captures()) return refused;
  return register_memory(call, Range::of(memory, bytes), flags, false);
}

Result cuMemHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  MADE_UP_CALL(Need::kContext);
  if (const Result refused = forbid_in_captures()) return refused;
  return register_memory(call, Range::of(memory, bytes), flags, false);
}

Result cuMemHostUnregister(void* memory) {
  MADE_UP_CALL(Need::kInitialized);
  if (call.sticky()) return call.sticky();
  if (const Result refused = forbid_in_captures()) return refused;
  return unregister_memory(call, reinterpret_cast<pinion::Address>(memory), false);
}

Result cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  MADE_UP_CALL(Need::kContext);
  return allocate_host(call, memory, bytes, flags);
}

Result cuMemAllocHost_v2(void** memory, std::size_t bytes) {
  MADE_UP_CALL(Need::kContext);
  return allocate_host(call, memory, bytes, 0);
}

Result cuMemFreeHost(void* memory) {
  MADE_UP_CALL(Need::kInitialized);
  if (call.sticky()) return call.sticky();
  if (const Result refused = forbid_in_captures()) return refused;
  const auto base = reinterpret_cast<pinion::Address>(memory);
  const RegistrationPointer registration = registration_of(base);
  const Result result = unregister_memory(call, base, true);
  if (result == kSuccess) ::munmap(memory, (registration->range.bytes() + kPage - 1) / kPage * kPage);
  return result == kNotRegistered ? kInvalidValue : result;
}

Result cuMemHostGetFlags(unsigned* flags, void* memory) {
  MADE_UP_CALL(Need::kContext);
  const RegistrationPointer registration = registration_of(reinterpret_cast<pinion::Address>(memory));
  if (!registration || !flags) return kInvalidValue;
  *flags = registration->flags;
  return kSuccess;
}

Result cuMemHostGetDevicePointer_v2(DevicePointer* device, void* memory, unsigned) {
  MADE_UP_CALL(Need::kContext);
  const auto address = reinterpret_cast<pinion::Address>(memory);
  if (!device || !registration_of(address)) return kInvalidValue;
  *device = address;
  return kSuccess;
}

Result cuMemGetAddressRange_v2(DevicePointer* base, std::size_t* bytes, DevicePointer pointer) {
  MADE_UP_CALL(Need::kContext);
  const auto is = known(pointer);
  if (!is) return kInvalidValue;
  if (base) *base = is->range.begin;
  if (bytes) *bytes = is->range.bytes();
  return kSuccess;
}

Result cuPointerGetAttribute(void* data, int attribute, DevicePointer pointer) {
  MADE_UP_CALL(Need::kContext);
  if (!data) return kInvalidValue;
  const auto is = known(pointer);
  return is && write_attribute(data, attribute, pointer, *is) ? kSuccess : kInvalidValue;
}

Result cuPointerGetAttributes(unsigned count, const int* attributes, void** data, DevicePointer pointer) {
  MADE_UP_CALL(Need::kContext);
  if (count == 0 || !attributes || !data) return kInvalidValue;
  const auto is = known(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (!is || !write_attribute(data[i], attributes[i], pointer, *is))
      clear_attribute(data[i], attributes[i]);
  }
  return kSuccess;
}

}  // extern "C"
