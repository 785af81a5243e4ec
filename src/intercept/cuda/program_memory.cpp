#include "intercept/cuda/program_memory.h"

#include "device/cuda/host_ranges.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/front.h"
#include "intercept/cuda/staged_copy.h"

namespace pinion::cuda {

namespace {

/// Memory that nobody registers: the driver's answers about it are those about any pageable memory.
constinit char g_pageable = 0;

/// Closes the byte to registration while the program asks about it; nothing else would keep an answer from
/// telling of a registration that begins meanwhile.
class Asked {
 public:
  explicit Asked(Address address)
      : range_{address, address + 1}, hidden_(!host_ranges().close({&range_, 1})) {}
  ~Asked() {
    if (!hidden_) host_ranges().open({&range_, 1});
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  /// The memory is registered by us alone.
  bool hidden() const { return hidden_; }

 private:
  const Range range_;
  const bool hidden_;
};

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }
DevicePointer pageable() { return reinterpret_cast<DevicePointer>(&g_pageable); }

unsigned long long id_of(Context context) {
  unsigned long long id = 0;
  if (driver().context_id != nullptr && driver().context_id(context, &id) == kSuccess) return id;
  return 0;
}

}  // namespace

Result register_host(Range range, PlainCall plain) { return pass({&range, 1}, plain); }

Result unregister_host(void* memory, PlainCall plain) {
  const Asked asked(address_of(memory));
  return asked.hidden() ? kNotRegistered : plain();
}

Result allocate_host(void**, std::size_t, PlainCall plain) { return plain(); }

Result free_host(void* memory, PlainCall plain) {
  return memory != nullptr && host_ranges().registration_of(address_of(memory)) ? kInvalidValue : plain();
}

Result host_flags(unsigned*, void* memory, PlainCall plain) {
  const Asked asked(address_of(memory));
  return asked.hidden() ? kInvalidValue : plain();
}

Result host_device_pointer(DevicePointer*, void* memory, unsigned, PlainCall plain) {
  const Asked asked(address_of(memory));
  return asked.hidden() ? kInvalidValue : plain();
}

Result address_range(DevicePointer*, std::size_t*, DevicePointer pointer, PlainCall plain) {
  const Asked asked(pointer);
  return asked.hidden() ? kInvalidValue : plain();
}

Result pointer_attribute(void* value, int attribute, DevicePointer pointer, PlainCall plain) {
  const Asked asked(pointer);
  return asked.hidden() ? driver().pointer_attribute(value, attribute, pageable()) : plain();
}

Result pointer_attributes(unsigned count, const int* attributes, void** values, DevicePointer pointer,
                          PlainCall plain) {
  const Asked asked(pointer);
  return asked.hidden() && driver().pointer_attributes != nullptr
             ? driver().pointer_attributes(count, attributes, values, pageable())
             : plain();
}

Result begin_capture(Stream, PlainCall plain) { return plain(); }

Result destroy_context(Context context, PlainCall plain) {
  staging_contexts_changed(id_of(context));
  return plain();
}

Result release_primary_context(Ordinal, PlainCall plain) {
  staging_contexts_changed(0);
  return plain();
}

Result reset_primary_context(Ordinal, PlainCall plain) {
  staging_contexts_changed(0);
  return plain();
}

}  // namespace pinion::cuda
