// The Allreduce of `pinion bench prereg` on 16 nodes, in virtual time.
#pragma once

#include <cstdint>

namespace pinion::cli {

constexpr int kAllreduceNodes = 16;

/// Microseconds of an MPI_Allreduce of so many bytes whose two buffers are new in each call, on a rank a
/// node: in memory that is registered for each message, or in a segment of the arena.
double simulated_allreduce_us(std::uint64_t bytes, bool in_arena);

}  // namespace pinion::cli
