#include "device/make.h"

#include <utility>

#include "device/cost_model.h"
#include "device/emulated.h"
#include "device/pin.h"
#include "device/verbs.h"

namespace pinion {

namespace {

constexpr DeviceKind kKinds[] = {
    {"pin", "pins pages by io_uring fixed buffers, or mlock where these are refused; no NIC"},
    {"emulated", "pins like `pin` and takes the time that a NIC's cost model says (--nic)"},
    {"verbs", "registers with an RDMA device by libibverbs; verbs:NAME or verbs:NAME:PORT chooses one"},
};

}  // namespace

const DeviceKind* device_kinds(std::size_t* count) {
  *count = std::size(kKinds);
  return kKinds;
}

DeviceResult make_device(const std::string& device, const std::string& nic) {
  if (device == "pin") return {{}, make_pin_device()};
  if (device == "emulated") {
    CostModelResult loaded = load_cost_model(nic);
    if (loaded.error) return {loaded.error, nullptr};
    return {{}, make_emulated_device(make_pin_device(), std::move(loaded.model))};
  }
  if (device == "verbs" || device.rfind("verbs:", 0) == 0) {
    VerbsDeviceResult made = make_verbs_device(device.size() > 6 ? device.substr(6) : "");
    return {made.error, std::move(made.device)};
  }
  std::string valid;
  for (const DeviceKind& kind : kKinds) valid += std::string(valid.empty() ? "" : ", ") + kind.name;
  return {Error::make(EINVAL, "no device is called '%s'; valid: %s", device.c_str(), valid.c_str()), nullptr};
}

}  // namespace pinion
