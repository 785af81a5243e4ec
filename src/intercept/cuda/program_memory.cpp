#include "intercept/cuda/program_memory.h"

#include <chrono>
#include <thread>

#include "base/machine_memory.h"
#include "device/cuda/host_ranges.h"
#include "device/kernel/writable_memory.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/end_of_copy.h"
#include "intercept/cuda/front.h"
#include "intercept/cuda/kept.h"
#include "intercept/cuda/registrations.h"
#include "intercept/cuda/staged_copy.h"
#include "intercept/cuda/submission_gate.h"
#include "prepare/fault_in_by_threads.h"

namespace pinion::cuda {

namespace {

/// Memory that nobody registers: the driver's answers about it are those about any pageable memory.
constinit char g_pageable = 0;

/// Closes the byte to registration while the program asks about it; nothing else would keep an answer from
/// telling of a registration that begins meanwhile.
class Asked {
 public:
  explicit Asked(Address address)
      : byte_(Range{address, address + 1}),
        closed_(host_ranges().close({&byte_, 1})),
        hidden_(!closed_ || host_ranges().registration_of(address)) {}
  ~Asked() {
    if (closed_) host_ranges().open({&byte_, 1});
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
  /// The memory is registered by us alone.
  bool hidden() const { return hidden_; }

 private:
  const Block byte_;
  const bool closed_, hidden_;
};

/// Whether the driver, or the kernel below it, lacks room for what a call pins.
bool is_for_want_of_room(Result result) {
  constexpr Result kOperatingSystem = 304;
  return result == kOutOfMemory || result == kOperatingSystem;
}

/// Makes a call that pins memory for the program. What is registered and idle makes way where the driver has
/// no room. Other threads register meanwhile, so it takes a few tries.
Result pin(PlainCall plain) {
  constexpr int kTries = 4;
  Result result = plain();
  for (int i = 0; i < kTries && is_for_want_of_room(result) && Registrations::make_room(); ++i)
    result = plain();
  return result;
}

/// Makes a call that ends the program's own pinning of memory. It counts as ended before the driver lets it
/// go: its address may be another thread's directly after that.
Result end_own(Range range, PlainCall plain) {
  const Result result = plain();
  if (result != kSuccess) host_ranges().add_pinned(range);
  return result;
}

/// The driver would fault it in by one thread. A call that fails leaves the memory as it is.
void fault_in_what_the_driver_takes(Range range) {
  if (range.empty() || range.bytes() > machine_memory() / 2 || current_context(driver()) == nullptr) return;
  if (host_ranges().may_register(range) && !check_writable_memory(range)) fault_in_by_threads(range, true);
}

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

/// Asks the driver about memory of the program. Memory that we alone have registered is pageable memory to
/// the program, so the question is put about other such memory.
template <class OfPageable>
Result ask(Address address, PlainCall plain, OfPageable of_pageable) {
  const Kept<Asked> asked(address);
  return asked->hidden() ? of_pageable(reinterpret_cast<DevicePointer>(&g_pageable)) : plain();
}

unsigned long long id_of(Context context) {
  unsigned long long id = 0;
  if (driver().context_id != nullptr && driver().context_id(context, &id) == kSuccess) return id;
  return 0;
}

/// Forgets what contexts that have ended had pinned for the program.
void forget_ended_pinning() {
  for (const Range range : host_ranges().pinned()) {
    unsigned type = 0;
    // Without a current context all is forgotten: copies of it then ask the driver each time.
    if (driver().pointer_attribute(&type, kAttributeMemoryType, range.begin) != kSuccess)
      host_ranges().take_pinned(range.begin);
  }
}

/// Makes a call that may end a context; 0: any. A copy of another thread may come between the call and what
/// is said about it.
Result end_contexts(unsigned long long id, PlainCall plain) {
  staging_contexts_changed(id);
  const Result result = plain();
  staging_contexts_changed(id);
  forget_ended_pinning();
  return result;
}

}  // namespace

Result register_host(Range range, PlainCall plain) {
  fault_in_what_the_driver_takes(range);
  const Kept<Block> block(range);
  return pass({&*block, 1}, [&] {
    const Result result = pin(plain);
    if (result == kSuccess) host_ranges().add_pinned(range);
    return result;
  });
}

Result unregister_host(void* memory, PlainCall plain) {
  if (const auto own = host_ranges().take_pinned(address_of(memory))) return end_own(*own, plain);
  const Kept<Asked> asked(address_of(memory));
  return asked->hidden() ? driver().host_unregister(&g_pageable) : plain();
}

Result allocate_host(void** memory, std::size_t bytes, PlainCall plain) {
  Result result = pin(plain);
  // The memory that the driver has mapped for it was ours to register earlier. The helper may be at it.
  for (int tries = 0; result == kAlreadyRegistered && tries < 200; ++tries) {
    let_doomed_go();
    std::this_thread::sleep_for(std::chrono::microseconds(50 * tries));
    result = pin(plain);
  }
  if (result == kSuccess && memory != nullptr && *memory != nullptr)
    host_ranges().add_pinned(Range::of(*memory, bytes));
  return result;
}

Result free_host(void* memory, PlainCall plain) {
  if (const auto own = host_ranges().take_pinned(address_of(memory))) return end_own(*own, plain);
  return memory != nullptr && host_ranges().registration_of(address_of(memory)) ? kInvalidValue : plain();
}

Result host_flags(unsigned* flags, void* memory, PlainCall plain) {
  return ask(address_of(memory), plain, [&](DevicePointer pageable) {
    return driver().host_flags(flags, reinterpret_cast<void*>(pageable));
  });
}

Result host_device_pointer(DevicePointer* pointer, void* memory, unsigned flags, PlainCall plain) {
  return ask(address_of(memory), plain, [&](DevicePointer pageable) {
    return driver().host_device_pointer(pointer, reinterpret_cast<void*>(pageable), flags);
  });
}

Result address_range(DevicePointer* base, std::size_t* bytes, DevicePointer pointer, PlainCall plain) {
  return ask(pointer, plain,
             [&](DevicePointer pageable) { return driver().address_range(base, bytes, pageable); });
}

Result pointer_attribute(void* value, int attribute, DevicePointer pointer, PlainCall plain) {
  return ask(pointer, plain,
             [&](DevicePointer pageable) { return driver().pointer_attribute(value, attribute, pageable); });
}

Result pointer_attributes(unsigned count, const int* attributes, void** values, DevicePointer pointer,
                          PlainCall plain) {
  return ask(pointer, plain, [&](DevicePointer pageable) {
    return driver().pointer_attributes(count, attributes, values, pageable);
  });
}

Result begin_capture(Stream stream, PlainCall plain) {
  const Kept<SubmissionGate::Exclusive> alone(submission_gate(), driver(), stream, current_context(driver()));
  return plain();
}

Result destroy_context(Context context, PlainCall plain) { return end_contexts(id_of(context), plain); }

Result release_primary_context(Ordinal, PlainCall plain) { return end_contexts(0, plain); }

Result reset_primary_context(Ordinal, PlainCall plain) { return end_contexts(0, plain); }

}  // namespace pinion::cuda
