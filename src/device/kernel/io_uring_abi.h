// The parts of io_uring's interface that are younger than the oldest kernel headers that Pinion is built with
// (Linux 5.15, Ubuntu 22.04). Values of the kernel; no state.
#pragma once

#include <linux/io_uring.h>

#include <cstdint>

namespace pinion {

/// io_uring_rsrc_register as of Linux 5.19, where `flags` came into use.
struct IoUringTable {
  std::uint32_t nr;
  std::uint32_t flags;
  std::uint64_t reserved;
  std::uint64_t data;
  std::uint64_t tags;
};
static_assert(sizeof(IoUringTable) == sizeof(io_uring_rsrc_register));

constexpr std::uint32_t kSparseTable = 1;  ///< IORING_RSRC_REGISTER_SPARSE

}  // namespace pinion
