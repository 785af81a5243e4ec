// Devices by the names that users give them. Called while starting, before threads.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/device.h"

namespace pinion {

/// The devices that exist, with a line of text each, for `pinion info`.
struct DeviceKind {
  const char* name;
  const char* text;
  bool takes_nic = false;  ///< a cost model sets the length of its calls (--nic)
};
const DeviceKind* device_kinds(std::size_t* count);
/// The kind of a device by its name, perhaps with a choice; null where there is none.
const DeviceKind* device_kind(const std::string& device);

/// `device` is one of device_kinds(), verbs and fabric perhaps with a choice; `nic` is a cost model
/// (cost_model.h) for a device that takes one. Errors list the valid names.
struct DeviceResult {
  Error error;
  std::unique_ptr<Device> device;
};
DeviceResult make_device(const std::string& device, const std::string& nic);

/// ENODEV where no machine with this libfabric can have the device: fabric:PROVIDER of an unknown name.
Error check_device(const std::string& device);

}  // namespace pinion
