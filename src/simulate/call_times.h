// The deviations of a run's device calls from a cost model: memory touched for the first time and threads
// that lose their core are in no model, but the helper's margins follow them. A value.
#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "device/model/cost_model.h"

namespace pinion::simulate {

class CallTimes {
 public:
  /// A call took so long instead of `modelled`.
  void observe(Actor actor, bool registration, Duration took, Duration modelled) {
    of(actor, registration)
        .factors.push_back(static_cast<float>(static_cast<double>(took) /
                                              static_cast<double>(std::max<Duration>(modelled, 1))));
  }

  /// The length of the next such call, `modelled` by the model. It repeats the observed deviations in their
  /// order, from the first again after the last. None observed: the model's.
  Duration next(Actor actor, bool registration, Duration modelled) {
    Strays& strays = of(actor, registration);
    if (strays.factors.empty()) return modelled;
    const double factor = strays.factors[strays.next++ % strays.factors.size()];
    return static_cast<Duration>(
        std::min(factor * static_cast<double>(modelled), static_cast<double>(kLongestCall)));
  }

 private:
  struct Strays {
    std::vector<float> factors;
    std::size_t next = 0;
  };
  Strays& of(Actor actor, bool registration) {
    return strays_[static_cast<std::size_t>(actor)][registration];
  }

  Strays strays_[2][2];
};

}  // namespace pinion::simulate
