// Calls of the program about host memory itself, and about captures and contexts: what registers memory, asks
// about it, or ends registrations. They see the program's memory as it is without Pinion. Owns nothing.
//
// Any thread, outside of memory hooks. `plain` makes the program's call; these decide what happens around it.
#pragma once

#include <cstddef>

#include "base/function_ref.h"
#include "base/range.h"
#include "device/cuda/driver_api.h"

namespace pinion::cuda {

using PlainCall = FunctionRef<Result()>;

Result register_host(Range range, PlainCall plain);
Result unregister_host(void* memory, PlainCall plain);
/// `memory` is written by the call.
Result allocate_host(void** memory, std::size_t bytes, PlainCall plain);
Result free_host(void* memory, PlainCall plain);

Result host_flags(unsigned* flags, void* memory, PlainCall plain);
Result host_device_pointer(DevicePointer* pointer, void* memory, unsigned flags, PlainCall plain);
Result address_range(DevicePointer* base, std::size_t* bytes, DevicePointer pointer, PlainCall plain);
Result pointer_attribute(void* value, int attribute, DevicePointer pointer, PlainCall plain);
Result pointer_attributes(unsigned count, const int* attributes, void** values, DevicePointer pointer,
                          PlainCall plain);

Result begin_capture(Stream stream, PlainCall plain);

Result destroy_context(Context context, PlainCall plain);
Result release_primary_context(Ordinal device, PlainCall plain);
Result reset_primary_context(Ordinal device, PlainCall plain);

}  // namespace pinion::cuda
