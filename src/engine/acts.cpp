#include "engine/acts.h"

#include "device/node_devices.h"

namespace pinion {

Acts acts_at_start(const Options& options) {
  if (options.front == Front::verbs) return Acts::verbs;
  return options.device == kAutoDevice ? Acts::measured : Acts::pinned;
}

bool may_act_below(const Options& options) {
  return options.front == Front::verbs || (may_act_below_somewhere(options) && reaches_nic());
}

bool may_act_below_somewhere(const Options& options) {
  return options.front == Front::verbs ||
         (options.front == Front::automatic && options.device == kAutoDevice);
}

}  // namespace pinion
