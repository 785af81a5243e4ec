// The options of devices. Filled before threads start, then only read.
#pragma once

#include <string>
#include <string_view>

#include "base/options.h"

namespace pinion {

/// The device that depends on the front: the one below the libraries, or none (device/none.h).
inline constexpr const char* kAutoDevice = "auto";

struct DeviceOptions {
  std::string device = kAutoDevice;
  std::string nic = "connectx";
};

OptionTable<DeviceOptions> device_options();

/// "; did you mean verbs:mlx5_0?" for the bare name of an RDMA device; else nothing.
std::string device_hint(std::string_view device);

}  // namespace pinion
