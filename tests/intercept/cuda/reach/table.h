// The table of calls (src/intercept/cuda/calls.inc) as an object sees it: each symbol with its weak
// reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
#define CALL(symbol, ...) [[gnu::weak]] int symbol(std::uintptr_t, ...);
#include "intercept/cuda/calls.inc"
}

namespace reach {

struct Name {
  const char* symbol;
  const char* base;
  int since;
  bool per_thread;
  void* address;  ///< null: the object does not see it
};
inline const Name kNames[] = {
#define CALL(symbol, base, since, per_thread, ...) \
  {#symbol, #base, since, per_thread != 0, reinterpret_cast<void*>(&symbol)},
#include "intercept/cuda/calls.inc"
};

/// The results of the library's functions: that much and their place in the table. cuInit finds no device.
inline constexpr int kFirstResult = 5000, kNoDevice = 100;
inline int result_of(const Name& name, std::size_t place) {
  return std::strcmp(name.symbol, "cuInit") == 0 ? kNoDevice : kFirstResult + static_cast<int>(place);
}

}  // namespace reach
