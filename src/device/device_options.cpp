#include "device/device_options.h"

namespace pinion {

namespace {

constexpr const char* kDeviceForm =
    "auto, pin, emulated, verbs, verbs-odp, or the last two with a device: verbs:NAME, verbs:NAME:PORT; "
    "fabric, fabric:PROVIDER";

bool is_port(std::string_view text) {
  const auto port = parse_count(text);
  return port && *port >= 1 && *port <= 255;
}

/// A name of device/make.h.
bool is_device(std::string_view text) {
  const auto colon = text.find(':');
  const auto kind = text.substr(0, colon);
  if (kind == kAutoDevice || kind == "pin" || kind == "emulated") return colon == std::string_view::npos;
  if (kind != "verbs" && kind != "verbs-odp" && kind != "fabric") return false;
  if (colon == std::string_view::npos) return true;
  if (kind == "fabric") return colon + 1 < text.size();
  const auto choice = text.substr(colon + 1);
  const auto second = choice.find(':');
  if (second != std::string_view::npos && !is_port(choice.substr(second + 1))) return false;
  return !choice.substr(0, second).empty();
}

bool is_given(std::string_view text) { return !text.empty(); }

}  // namespace

OptionTable<DeviceOptions> device_options() {
  using O = DeviceOptions;
  return {
      text_option(
          &O::device,
          {"device",
           "device that registers memory for MPI calls. auto: none, since libraries register with the NIC "
           "(see --front). pin, emulated, verbs or verbs-odp (also :NAME or :NAME:PORT), fabric or "
           "fabric:PROVIDER: that device registers beside the MPI library; `pinion info devices` lists them",
           Listing::everyday, kDeviceForm, device_hint},
          is_device),
      text_option(&O::nic,
                  {"nic", "cost model of the emulated device: connectx, myrinet, none, or a file",
                   Listing::everyday, "connectx, myrinet, none, or a file"},
                  is_given),
  };
}

// Their names end in a number: mlx5_0, rxe0, bnxt_re1.
std::string device_hint(std::string_view device) {
  const auto name = device.substr(0, device.find(':'));
  if (name.empty() || name.back() < '0' || name.back() > '9') return {};
  const std::string meant = "verbs:" + std::string(device);
  return is_device(meant) ? "; did you mean " + meant + "?" : "";
}

}  // namespace pinion
