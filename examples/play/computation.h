// Computation of known length: a fixed number of turns of a loop, so that loss of the core lengthens it as it
// lengthens a real one; or sleep, for machines whose processor is shared or emulated. One
// thread.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace play {

class Computation {
 public:
  enum class Kind : std::uint8_t { loop, sleep };

  /// `loops_per_second`: of this processor, or of the study that the run belongs to.
  Computation(Kind kind, double loops_per_second) : kind_(kind), loops_per_ns_(loops_per_second * 1e-9) {}

  void run(pinion::Duration time) const;

  /// Loops that this processor does in a second: of many short batches the quickest, which lost its core
  /// least.
  static double measured_loops_per_second();

 private:
  Kind kind_;
  double loops_per_ns_;
};

}  // namespace play
