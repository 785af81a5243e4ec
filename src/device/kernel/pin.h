// The device without a NIC: the kernel really pins the pages; transfers are left to the program.
// Pins through io_uring fixed buffers, with rings for application threads and others for the helper, opened
// when first needed. Pages are locked by mlock() instead, counted, where io_uring is refused, does not take
// the memory (read-only mappings, shared files), or is beyond RLIMIT_MEMLOCK with all processes of the user.
// io_uring pins for writing, so it grants every right; mlock() grants writing only where the memory is
// writable and writing was asked for. Memory is faulted in first, in steps. Threads as in device.h.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "device/kernel/memlock.h"

namespace pinion {

std::unique_ptr<Device> make_pin_device();

/// The means of pinning here, for reports.
struct PinSupport {
  bool io_uring = false;
  std::string io_uring_refused;  ///< why not; empty where io_uring works
  Memlock memlock;
};
PinSupport pin_support();

}  // namespace pinion
