// The calls that the front stands before (calls.inc), and the functions behind them. A call has a wrapper for
// each of the two functions that may be behind it: that of libcuda, and that of a library which stands before
// libcuda too. Whoever looks a call up gets the wrapper of the function that was found.
//
// Owns the addresses of these functions; each is written once. Any thread, outside of memory hooks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace pinion::cuda {

inline constexpr std::size_t kCallCount = 0
#define CALL(...) +1
#include "intercept/cuda/calls.inc"
    ;

/// The functions that one call may have behind it.
inline constexpr std::size_t kLayers = 2;

/// The symbols, in the order of the table.
extern const char* const kCallNames[];

struct Call {
  const char* symbol;
  const char* base;  ///< as cuGetProcAddress knows it
  int since;         ///< the first version that finds this form by the base name
  bool per_thread;   ///< a null stream means the per-thread default stream
  std::array<void*, kLayers> wrappers;
};
extern const Call kCalls[];

/// The functions behind the wrappers of each call.
extern std::array<std::array<std::atomic<void*>, kLayers>, kCallCount> g_behind;

/// The call of that symbol; kCallCount for another symbol.
std::size_t call_of(const char* symbol);

}  // namespace pinion::cuda
