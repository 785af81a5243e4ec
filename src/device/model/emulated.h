// A NIC in time only: pins by another device, then lasts as long as the cost model gives. The call lasts the
// modelled time in all, of which pinning is the real part; where pinning alone takes longer, it is the whole.
// Application threads wait busily, as a NIC driver's registration would keep them busy (counted:
// modelled_busy_seconds()); the helper sleeps, so that on a machine with few cores a long modelled wait takes
// no CPU from the program; for a short one it waits busily, as a sleep would take more. A sleep may end late
// by the thread's timer slack. Translation entries: see translation.h. The model's caps hold too. Owns the
// inner device; threads as in device.h.
#pragma once

#include <memory>

#include "device/device.h"
#include "device/model/cost_model.h"

namespace pinion {

std::unique_ptr<Device> make_emulated_device(std::unique_ptr<Device> pins, CostModel nic);

}  // namespace pinion
