// The lateness of the simulated helper's timed wake-ups: always the same, or as a run's was. A value.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "runlog/lateness.h"

namespace pinion::simulate {

class WakeLatency {
 public:
  explicit WakeLatency(Duration always = 60 * kMicrosecond) : always_(always) {}
  /// Repeats the recorded ones in their order, from the first again after the last. None: as without a run.
  explicit WakeLatency(const runlog::Lateness& recorded) : recorded_(recorded) {}

  Duration next() {
    if (recorded_.kept == 0) return always_;
    return recorded_.decode(recorded_.codes[next_++ / recorded_.stride % recorded_.kept]);
  }

 private:
  Duration always_ = 60 * kMicrosecond;
  runlog::Lateness recorded_{};
  std::uint64_t next_ = 0;
};

}  // namespace pinion::simulate
