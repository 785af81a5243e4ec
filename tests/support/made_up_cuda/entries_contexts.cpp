// The driver's start, its device, and contexts.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/contexts.h"
#include "support/made_up_cuda/controls.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

/// Sets a thread's current context as cuCtxSetCurrent does. A null one leaves none.
void set_current(Handle context) {
  auto& contexts = self().contexts;
  if (!contexts.empty()) contexts.pop_back();
  if (context) contexts.push_back(context);
}

Result create(Call& call, Handle* made, unsigned flags, int device) {
  if (!made) return kInvalidValue;
  if (device != 0) return kInvalidDevice;
  *made = make_context(device, flags)->handle;
  self().contexts.push_back(*made);
  (void)call;
  return kSuccess;
}

/// The primary context keeps its handle while the process lives, and gets a new number when it is reset.
Result end_primary(Call& call) {
  World& w = world();
  const ContextPointer primary = std::exchange(w.primary, nullptr);
  if (primary) end_context(call.lock(), primary, call.name());
  return kSuccess;
}

Result destroy(Call& call, Handle handle) {
  const ContextPointer context = world().contexts.find(handle);
  if (!context || context->primary) return kInvalidContext;
  auto& contexts = self().contexts;
  if (!contexts.empty() && contexts.back() == handle) contexts.pop_back();
  end_context(call.lock(), context, call.name());
  return kSuccess;
}

Result release_primary(Call& call, int device) {
  if (device != 0) return kInvalidDevice;
  const ContextPointer primary = world().primary;
  if (!primary) return kInvalidContext;
  return --primary->users > 0 ? kSuccess : end_primary(call);
}

}  // namespace

extern "C" {

Result cuInit(unsigned flags) {
  MADE_UP_CALL(Need::kNothing);
  if (flags) return kInvalidValue;
  World& w = world();
  const char* const none = std::getenv("MADE_UP_CUDA_NO_DEVICE");
  if (none && *none == '1') return kNoDevice;
  if (w.initialized) return w.forked ? kNotInitialized : kSuccess;
  if (const char* const longest = std::getenv("MADE_UP_CUDA_LONGEST_WAIT"))
    w.settings.longest_wait = std::chrono::milliseconds(std::atoll(longest));
  w.settings.strict_exit = std::getenv("MADE_UP_CUDA_STRICT_EXIT") != nullptr;
  if (std::getenv("MADE_UP_CUDA_STRICT")) w.settings.strict_captures = true;
  set_handlers();
  w.initialized = true;
  return kSuccess;
}

Result cuDriverGetVersion(int* version) {
  MADE_UP_CALL(Need::kNothing);
  if (!version) return kInvalidValue;
  *version = 13000;
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  MADE_UP_CALL(Need::kInitialized);
  if (!count) return kInvalidValue;
  *count = 1;
  return kSuccess;
}

Result cuDeviceGet(int* device, int ordinal) {
  MADE_UP_CALL(Need::kInitialized);
  if (!device) return kInvalidValue;
  if (ordinal != 0) return kInvalidDevice;
  *device = 0;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int bytes, int device) {
  MADE_UP_CALL(Need::kInitialized);
  if (!name || bytes <= 0) return kInvalidValue;
  if (device != 0) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(bytes), "Made-up GPU");
  return kSuccess;
}

Result cuDeviceGetUuid_v2(unsigned char* id, int device) {
  MADE_UP_CALL(Need::kInitialized);
  if (device != 0) return kInvalidDevice;
  std::memset(id, 0x5a, 16);
  return kSuccess;
}

Result cuDeviceGetPCIBusId(char* name, int bytes, int device) {
  MADE_UP_CALL(Need::kInitialized);
  if (device != 0) return kInvalidDevice;
  std::snprintf(name, static_cast<std::size_t>(bytes), "0000:ff:1f.7");
  return kSuccess;
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  MADE_UP_CALL(Need::kInitialized);
  if (device != 0) return kInvalidDevice;
  *bytes = DeviceMemory::kTotal;
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  MADE_UP_CALL(Need::kInitialized);
  if (!value) return kInvalidValue;
  if (device != 0) return kInvalidDevice;
  // The multiprocessors, unified addressing, 9.0, host memory that is registered read-only, the NUMA node.
  constexpr int kKnown[][2] = {{16, 132}, {41, 1}, {75, 9}, {76, 0}, {113, 1}, {134, 0}};
  *value = 0;
  for (const auto& known : kKnown) {
    if (known[0] == attribute) *value = known[1];
  }
  return kSuccess;
}

Result cuDevicePrimaryCtxRetain(Handle* context, int device) {
  MADE_UP_CALL(Need::kInitialized);
  if (!context) return kInvalidValue;
  if (device != 0) return kInvalidDevice;
  World& w = world();
  if (!w.primary) {
    w.primary = make_context(device, 0);
    w.primary->primary = true;
  }
  ++w.primary->users;
  *context = w.primary->handle;
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
  MADE_UP_CALL(Need::kInitialized);
  return release_primary(call, device);
}

Result cuDevicePrimaryCtxRelease(int device) {
  MADE_UP_CALL(Need::kInitialized);
  return release_primary(call, device);
}

Result cuDevicePrimaryCtxReset_v2(int device) {
  MADE_UP_CALL(Need::kInitialized);
  return device != 0 ? kInvalidDevice : end_primary(call);
}

Result cuDevicePrimaryCtxReset(int device) {
  MADE_UP_CALL(Need::kInitialized);
  return device != 0 ? kInvalidDevice : end_primary(call);
}

Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  MADE_UP_CALL(Need::kInitialized);
  if (device != 0) return kInvalidDevice;
  if (flags) *flags = world().primary ? world().primary->flags : 0;
  if (active) *active = world().primary != nullptr;
  return kSuccess;
}

Result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  MADE_UP_CALL(Need::kInitialized);
  if (device != 0) return kInvalidDevice;
  if (world().primary) world().primary->flags = flags;
  return kSuccess;
}

Result cuCtxCreate_v2(Handle* context, unsigned flags, int device) {
  MADE_UP_CALL(Need::kInitialized);
  return create(call, context, flags, device);
}

Result cuCtxCreate_v3(Handle* context, void*, int, unsigned flags, int device) {
  MADE_UP_CALL(Need::kInitialized);
  return create(call, context, flags, device);
}

Result cuCtxCreate_v4(Handle* context, void*, unsigned flags, int device) {
  MADE_UP_CALL(Need::kInitialized);
  return create(call, context, flags, device);
}

Result cuCtxDestroy_v2(Handle handle) {
  MADE_UP_CALL(Need::kInitialized);
  return destroy(call, handle);
}

Result cuCtxDestroy(Handle handle) {
  MADE_UP_CALL(Need::kInitialized);
  return destroy(call, handle);
}

Result cuCtxDetach(Handle handle) {
  MADE_UP_CALL(Need::kInitialized);
  return destroy(call, handle);
}

Result cuCtxPushCurrent_v2(Handle context) {
  MADE_UP_CALL(Need::kInitialized);
  if (!world().contexts.find(context)) return kInvalidContext;
  self().contexts.push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Handle* context) {
  MADE_UP_CALL(Need::kInitialized);
  auto& contexts = self().contexts;
  if (contexts.empty()) return kInvalidContext;
  if (context) *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}

Result cuCtxSetCurrent(Handle context) {
  MADE_UP_CALL(Need::kInitialized);
  if (context && !world().contexts.find(context)) return kInvalidContext;
  set_current(context);
  return kSuccess;
}

Result cuCtxGetCurrent(Handle* context) {
  MADE_UP_CALL(Need::kInitialized);
  if (!context) return kInvalidValue;
  *context = self().contexts.empty() ? nullptr : self().contexts.back();
  return kSuccess;
}

Result cuCtxGetId(Handle context, unsigned long long* id) {
  MADE_UP_CALL(Need::kInitialized);
  const ContextPointer found = context ? world().contexts.find(context) : call.context();
  if (!found) return kInvalidContext;
  *id = found->id;
  return kSuccess;
}

Result cuCtxGetDevice(int* device) {
  MADE_UP_CALL(Need::kInitialized);
  if (!call.context()) return kInvalidContext;
  *device = call.context()->device;
  return kSuccess;
}

Result cuCtxGetFlags(unsigned* flags) {
  MADE_UP_CALL(Need::kInitialized);
  if (!call.context()) return kInvalidContext;
  *flags = call.context()->flags;
  return kSuccess;
}

Result cuCtxGetApiVersion(Handle, unsigned* version) {
  MADE_UP_CALL(Need::kInitialized);
  *version = 3020;
  return kSuccess;
}

Result cuCtxSynchronize() {
  MADE_UP_CALL(Need::kContext);
  const ContextPointer context = call.context();
  if (const Result refused = forbid_in_all_captures(*context)) return refused;
  const std::uint64_t last = context->works;
  wait(call.lock(), call.name(), [&] { return idle_up_to(*context, last); });
  return context->sticky;
}

}  // extern "C"
