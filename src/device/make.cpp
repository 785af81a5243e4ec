#include "device/make.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "device/device_options.h"
#include "device/fabric/fabric.h"
#include "device/kernel/pin.h"
#include "device/model/cost_model.h"
#include "device/model/emulated.h"
#include "device/none.h"
#include "device/verbs/verbs.h"

namespace pinion {

namespace {

constexpr DeviceKind kKinds[] = {
    {kAutoDevice, "nothing by itself: below libraries that register with a NIC, or measured only (--front)"},
    {"pin", "pins pages by io_uring fixed buffers, or mlock where these are refused; no NIC"},
    {"emulated", "pins like `pin`, and lasts as long as a NIC's cost model gives (--nic)", true},
    {"verbs", "registers with an RDMA device by libibverbs; verbs:NAME or verbs:NAME:PORT chooses one"},
    {"verbs-odp",
     "the same without pinning, where the device has on-demand paging; memory needed next is prefetched"},
    {"fabric", "registers by libfabric, with the best provider here; fabric:PROVIDER chooses one"},
};

}  // namespace

const DeviceKind* device_kinds(std::size_t* count) {
  *count = std::size(kKinds);
  return kKinds;
}

const DeviceKind* device_kind(const std::string& device) {
  const std::string name = device.substr(0, device.find(':'));
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [&](const DeviceKind& kind) { return name == kind.name; });
  return found == std::end(kKinds) ? nullptr : found;
}

Error check_device(const std::string& device) {
  constexpr std::string_view kFabric = "fabric:";
  return device.starts_with(kFabric) ? check_fabric_provider(device.substr(kFabric.size())) : Error{};
}

DeviceResult make_device(const std::string& device, const std::string& nic) {
  if (device == kAutoDevice) return {{}, make_no_device()};
  if (device == "pin") return {{}, make_pin_device()};
  if (device == "emulated") {
    CostModelResult loaded = load_cost_model(nic);
    if (loaded.error) return {loaded.error, nullptr};
    return {{}, make_emulated_device(make_pin_device(), std::move(loaded.model))};
  }
  const std::string kind = device.substr(0, device.find(':'));
  const std::string choice = device.size() > kind.size() ? device.substr(kind.size() + 1) : "";
  if (kind == "verbs" || kind == "verbs-odp") {
    VerbsDeviceResult made = make_verbs_device(choice, kind == "verbs" ? Paging::pinned : Paging::on_demand);
    return {made.error, std::move(made.device)};
  }
  if (kind == "fabric") {
    FabricDeviceResult made = make_fabric_device(choice);
    return {made.error, std::move(made.device)};
  }
  std::string valid;
  for (const DeviceKind& kind : kKinds) valid += std::string(valid.empty() ? "" : ", ") + kind.name;
  return {Error::make(EINVAL, "no device is called '%s'; valid: %s%s", device.c_str(), valid.c_str(),
                      device_hint(device).c_str()),
          nullptr};
}

}  // namespace pinion
