// Lets a computation stray from its nominal length. Each simulated thread has one; deterministic for its
// seed.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "simulate/random.h"

namespace pinion::simulate {

struct NoiseModel {
  enum class Kind : std::uint8_t {
    none,
    uniform,    ///< every interval by itself, evenly within `share` either way
    spikes,     ///< something takes the core: every 100 ms of computation on average, for 0.5 to 2 ms
    warm_up,    ///< twice as slow at first, falling to nominal within a twentieth of the run
    regime,     ///< nominal, then half as slow again in the second third of the run, then a quarter faster
    drift,      ///< evenly slower, up to half as slow again at the end
    irregular,  ///< every interval between half and twice its length, evenly in the logarithm
  };
  Kind kind = Kind::none;
  double share = 0;

  /// "none", "1%" (any share), "spikes", "warm-up", "regime", "drift", "irregular".
  static Error parse(const std::string& text, NoiseModel& model);
};

class Noise {
 public:
  Noise(NoiseModel model, std::uint64_t seed) : model_(model), random_(seed) {}

  /// The length of an interval of nominally `compute`, at `progress` (from 0 to 1) of the run.
  Duration of(Duration compute, double progress) {
    return model_.kind == NoiseModel::Kind::none || compute == 0 ? compute : disturbed(compute, progress);
  }

 private:
  Duration disturbed(Duration compute, double progress);

  const NoiseModel model_;
  Random random_;
};

}  // namespace pinion::simulate
