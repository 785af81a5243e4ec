// Lets a computation stray from its nominal length. Each simulated thread has one of its own; deterministic
// for its seed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"

namespace pinion::simulate {

class Disturbance {
 public:
  virtual ~Disturbance() = default;
  /// Returns the length of an interval of nominally `compute`, at `progress` (from 0 to 1) of the run.
  virtual Duration of(Duration compute, double progress) = 0;
};

/// Makes a thread's, by its seed. Empty: computations have their nominal lengths.
using MakeDisturbance = std::function<std::unique_ptr<Disturbance>(std::uint64_t seed)>;

}  // namespace pinion::simulate
