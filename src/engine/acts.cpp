#include "engine/acts.h"

#include "device/node_devices.h"

namespace pinion {

Acts acts_at_start(const Options& options) {
  if (options.front == Front::verbs) return Acts::verbs;
  return options.device == kAutoDevice ? Acts::measured : Acts::pinned;
}

bool may_act_below(const Options& options) {
  if (options.front == Front::verbs) return true;
  return options.front == Front::automatic && options.device == kAutoDevice && reaches_nic();
}

}  // namespace pinion
