// The Allreduce of `pinion bench prereg` on 16 nodes, in virtual time.
#pragma once

#include <cstdint>

namespace pinion::cli {

constexpr int kAllreduceNodes = 16;

/// How memory comes to be registered.
enum class AllreduceMemory {
  unregistered,  ///< registration costs nothing
  on_demand,     ///< for each message
  once,          ///< each part of a new buffer at its first message, until the buffer's end
  arena,         ///< it lies in a segment that is registered already
};

/// Microseconds of an MPI_Allreduce of so many bytes whose two buffers are new in each call, on a rank a
/// node. Each call of the device takes `offload_ns` longer.
double simulated_allreduce_us(std::uint64_t bytes, AllreduceMemory memory, double network_bytes_per_second,
                              double offload_ns);

}  // namespace pinion::cli
