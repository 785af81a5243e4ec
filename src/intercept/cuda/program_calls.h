// The handlers of calls about host memory itself, captures and contexts: each hands its arguments to
// program_memory.h. Any thread, outside of memory hooks.
#pragma once

#include "intercept/cuda/program_memory.h"
#include "intercept/cuda/registrations.h"
#include "intercept/cuda/wrapper.h"

namespace pinion::cuda {

struct Initialize {
  using Function = Result(unsigned);
  static Result handle(const From&, Function* next, unsigned flags) {
    const Result result = next(flags);
    if (result == kSuccess) Registrations::prepare();
    return result;
  }
};
struct HostRegister {
  using Function = Result(void*, std::size_t, unsigned);
  static Result handle(const From&, Function* next, void* memory, std::size_t bytes, unsigned flags) {
    return register_host(Range::of(memory, bytes), [&] { return next(memory, bytes, flags); });
  }
};
struct HostUnregister {
  using Function = Result(void*);
  static Result handle(const From&, Function* next, void* memory) {
    return unregister_host(memory, [&] { return next(memory); });
  }
};
struct HostAllocate {
  using Function = Result(void**, std::size_t, unsigned);
  static Result handle(const From&, Function* next, void** memory, std::size_t bytes, unsigned flags) {
    return allocate_host(memory, bytes, [&] { return next(memory, bytes, flags); });
  }
};
struct HostAllocatePlain {
  using Function = Result(void**, std::size_t);
  static Result handle(const From&, Function* next, void** memory, std::size_t bytes) {
    return allocate_host(memory, bytes, [&] { return next(memory, bytes); });
  }
};
struct HostFree {
  using Function = Result(void*);
  static Result handle(const From&, Function* next, void* memory) {
    return free_host(memory, [&] { return next(memory); });
  }
};
struct HostFlags {
  using Function = Result(unsigned*, void*);
  static Result handle(const From&, Function* next, unsigned* flags, void* memory) {
    return host_flags(flags, memory, [&] { return next(flags, memory); });
  }
};
struct HostDevicePointer {
  using Function = Result(DevicePointer*, void*, unsigned);
  static Result handle(const From&, Function* next, DevicePointer* pointer, void* memory, unsigned flags) {
    return host_device_pointer(pointer, memory, flags, [&] { return next(pointer, memory, flags); });
  }
};
struct AddressRange {
  using Function = Result(DevicePointer*, std::size_t*, DevicePointer);
  static Result handle(const From&, Function* next, DevicePointer* base, std::size_t* bytes,
                       DevicePointer pointer) {
    return address_range(base, bytes, pointer, [&] { return next(base, bytes, pointer); });
  }
};
struct PointerAttribute {
  using Function = Result(void*, int, DevicePointer);
  static Result handle(const From&, Function* next, void* value, int attribute, DevicePointer pointer) {
    return pointer_attribute(value, attribute, pointer, [&] { return next(value, attribute, pointer); });
  }
};
struct PointerAttributes {
  using Function = Result(unsigned, int*, void**, DevicePointer);
  static Result handle(const From&, Function* next, unsigned count, int* attributes, void** values,
                       DevicePointer pointer) {
    return pointer_attributes(count, attributes, values, pointer,
                              [&] { return next(count, attributes, values, pointer); });
  }
};

/// The stream is the first of `count` arguments.
template <std::size_t count>
struct BeginCapture {
  using Function = FunctionOfWords<count>;
  template <class... A>
  static Result handle(const From& from, Function* next, Word stream, A... arguments) {
    return begin_capture(from.stream(reinterpret_cast<Stream>(stream)),
                         [&] { return next(stream, arguments...); });
  }
};

struct DestroyContext {
  using Function = Result(Context);
  static Result handle(const From&, Function* next, Context context) {
    return destroy_context(context, [&] { return next(context); });
  }
};
struct ReleasePrimary {
  using Function = Result(Ordinal);
  static Result handle(const From&, Function* next, Ordinal device) {
    return release_primary_context(device, [&] { return next(device); });
  }
};
struct ResetPrimary {
  using Function = Result(Ordinal);
  static Result handle(const From&, Function* next, Ordinal device) {
    return reset_primary_context(device, [&] { return next(device); });
  }
};

}  // namespace pinion::cuda
