// The device `cuda`: registers host memory with the CUDA driver, so that copies between it and a GPU take
// place at the link's speed. Registrations are ranges of bytes, which neither overlap each other nor memory
// that a call of the program is using (host_ranges.h). They are made in a context of Pinion's own
// (own_context.h), for all contexts, writable memory alone.
//
// Made by the front, once the program has a driver. Threads as in device.h. Its caller deregisters a region
// after all copies of it have ended.
#pragma once

#include <memory>

#include "device/cuda/driver_api.h"
#include "device/cuda/host_ranges.h"
#include "device/cuda/own_context.h"
#include "device/device.h"

namespace pinion::cuda {

class CudaDevice : public Device {
 public:
  /// The driver has reported an error that stays. Nothing is registered any more, and nothing deregistered.
  virtual bool broken() const = 0;
  /// Registers nothing more; what is registered stays so.
  virtual void stop_registering() = 0;
  /// The process ends: nothing more is registered, nothing deregistered. What is registered counts as that.
  virtual void end() = 0;
  /// Unregisters what is left over in the range, after end(), for a call of the program that uses it.
  virtual void let_go_after_end(Range range) = 0;
};

/// All three outlive the device.
std::unique_ptr<CudaDevice> make_cuda_device(const Driver& driver, HostRanges& ranges, OwnContext& context);

}  // namespace pinion::cuda
