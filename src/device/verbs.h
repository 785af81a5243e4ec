// RDMA devices by libibverbs, of any provider: registering is ibv_reg_mr in a protection domain. As device.h
// says of all devices.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

struct ibv_pd;

namespace pinion {

struct VerbsDeviceResult {
  Error error;
  std::unique_ptr<Device> device;
};

/// Opens a device, with a context and a protection domain of its own. `choice` is NAME or NAME:PORT as
/// ibv_devinfo shows them; empty: the first with an active port. ENOENT: no libibverbs; ENODEV: no such
/// device, no active port.
VerbsDeviceResult make_verbs_device(const std::string& choice);

/// Registers in a protection domain of the program's own, which outlives the device. In a forked child, where
/// it is of no use, registering fails (ENODEV).
VerbsDeviceResult make_verbs_device(ibv_pd* pd);

}  // namespace pinion
