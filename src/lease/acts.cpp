#include "lease/acts.h"

#include "base/loaded_objects.h"
#include "device/node_devices.h"

namespace pinion {

Acts acts_at_start(const Options& options) {
  if (options.front == Front::verbs) return Acts::verbs;
  return options.device == kAutoDevice ? Acts::measured : Acts::pinned;
}

bool gpu_driver_is_loaded() {
  return for_each_loaded_object([](const LoadedObject& object) { return object.begins_with("libcuda.so"); });
}

bool may_act_below(const Options& options) {
  return options.front == Front::verbs || (may_act_below_somewhere(options) && reaches_nic());
}

bool may_act_below_somewhere(const Options& options) {
  return options.front == Front::verbs ||
         (options.front == Front::automatic && options.device == kAutoDevice);
}

bool may_switch_caches_off(const Options& options) { return may_act_below(options) && gpu_file().empty(); }

}  // namespace pinion
