#include "intercept/cuda/program_memory.h"

namespace pinion::cuda {

Result register_host(Range, PlainCall plain) { return plain(); }
Result unregister_host(void*, PlainCall plain) { return plain(); }
Result allocate_host(void**, std::size_t, PlainCall plain) { return plain(); }
Result free_host(void*, PlainCall plain) { return plain(); }

Result host_flags(unsigned*, void*, PlainCall plain) { return plain(); }
Result host_device_pointer(DevicePointer*, void*, unsigned, PlainCall plain) { return plain(); }
Result address_range(DevicePointer*, std::size_t*, DevicePointer, PlainCall plain) { return plain(); }
Result pointer_attribute(void*, int, DevicePointer, PlainCall plain) { return plain(); }
Result pointer_attributes(unsigned, const int*, void**, DevicePointer, PlainCall plain) { return plain(); }

Result begin_capture(Stream, PlainCall plain) { return plain(); }

Result destroy_context(Context, PlainCall plain) { return plain(); }
Result release_primary_context(Ordinal, PlainCall plain) { return plain(); }
Result reset_primary_context(Ordinal, PlainCall plain) { return plain(); }

}  // namespace pinion::cuda
