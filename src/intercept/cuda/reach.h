// The roads by which a program gets the driver's functions, each of which ends at our wrappers: linked names
// (entries.S), dlsym() and dlvsym() (intercept/lookup.h), and cuGetProcAddress. Without libcuda, and where
// the front is off, each is as without us.
//
// Owns the targets of the linked names. Any thread, outside of memory hooks.
#pragma once

#include <cstddef>

#include "intercept/cuda/wrapper.h"

namespace pinion::cuda {

/// Returns what the program gets in place of the function that cuGetProcAddress found for its question.
/// `per_thread`: it asked for the per-thread default stream.
void* wrapped_address(const char* name, int version, bool per_thread, void* found);

/// Flags of cuGetProcAddress.
inline constexpr std::uint64_t kPerThreadDefaultStream = 2;

/// The handlers of cuGetProcAddress. A library may ask within a wrapped call of the program, and keep the
/// answer.
struct ProcAddress {
  static constexpr bool kAlsoWithin = true;
  using Function = Result(const char*, void**, int, std::uint64_t);
  static Result handle(const From&, Function* next, const char* name, void** function, int version,
                       std::uint64_t flags) {
    const Result result = next(name, function, version, flags);
    if (result == kSuccess && name != nullptr && function != nullptr && *function != nullptr)
      *function = wrapped_address(name, version, (flags & kPerThreadDefaultStream) != 0, *function);
    return result;
  }
};
struct ProcAddressWithStatus {
  static constexpr bool kAlsoWithin = true;
  using Function = Result(const char*, void**, int, std::uint64_t, int*);
  static Result handle(const From&, Function* next, const char* name, void** function, int version,
                       std::uint64_t flags, int* status) {
    const Result result = next(name, function, version, flags, status);
    if (result == kSuccess && name != nullptr && function != nullptr && *function != nullptr)
      *function = wrapped_address(name, version, (flags & kPerThreadDefaultStream) != 0, *function);
    return result;
  }
};

}  // namespace pinion::cuda
