// Shared by the stub driver and its program.
#pragma once

#include <cstddef>

#include "stub.h"

/// The only memory that is on the device.
inline constexpr unsigned long long kDevice = 0x700000000000;
inline constexpr std::size_t kDeviceBytes = std::size_t{16} << 20;

struct CudaFigures {
  unsigned long long registered;  ///< copies of memory that is pinned where the program has it
  unsigned long long staged;      ///< pieces of copies through a ring
  int events;                     ///< that were made, and not destroyed
  int capture_mode;               ///< of the calling thread
};
CudaFigures cuda_figures();

/// The latest function of that base name that a version has; null: it has none.
void* cuda_function(const char* base, int version, bool per_thread);
