// Any network by libfabric: registering is fi_mr_reg in a domain. Providers whose network is the processor
// (tcp, shm, sockets, ...) pin nothing; for them the kernel pins the pages beside it, by device `pin`.
// Threads as in device.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

struct fi_info;
struct fid_domain;
struct fid_ep;

namespace pinion {

struct FabricLibrary;

struct FabricDeviceResult {
  Error error;
  std::unique_ptr<Device> device;
};

/// Opens a domain of its own. `choice` is a provider's name as fi_info shows it, or its part before the
/// semicolon; empty: the first that pins, else the first of libfabric's list. ENOENT, ENOSYS: no libfabric;
/// ENODEV: the provider is missing, or cannot put and get.
FabricDeviceResult make_fabric_device(const std::string& choice);
/// Opens a domain with the given functions, libfabric's own or a test's.
FabricDeviceResult make_fabric_device(const FabricLibrary& fabric, const std::string& choice);

/// Registers in a domain of the program's own. The domain outlives the device; so does `endpoint`, to which
/// registrations are bound where the domain requires one (FI_MR_ENDPOINT). `info` is the one that the domain
/// was opened with; it is only read here. Where keys are the program's to choose (no FI_MR_PROV_KEY), these
/// count down from the greatest. In a forked child registering fails (ENODEV).
FabricDeviceResult make_fabric_device(fid_domain* domain, const fi_info* info, fid_ep* endpoint);

/// A provider of reliable datagram endpoints, with all abilities that it has.
struct FabricProvider {
  std::string name;
  bool rma = false;
  bool atomics = false;
  bool automatic_progress = false;  ///< a peer's put proceeds without calls of the target
  bool ordered_puts = false;        ///< puts keep their order
  bool pins = false;                ///< registering pins by itself
  // Needs and results of registering (FI_MR_*).
  bool virtual_addresses = false;
  bool provider_keys = false;
  bool raw_keys = false;
  bool endpoint = false;
  bool local = false;  ///< local buffers, too, are registered
};
struct FabricProviders {
  Error error;
  std::vector<FabricProvider> providers;  ///< in libfabric's order
};
FabricProviders fabric_providers();
FabricProviders fabric_providers(const FabricLibrary& fabric);

/// ENODEV where this libfabric knows no provider of this name. A provider whose hardware is on other nodes
/// alone passes.
Error check_fabric_provider(const std::string& choice);
Error check_fabric_provider(const FabricLibrary& fabric, const std::string& choice);

}  // namespace pinion
