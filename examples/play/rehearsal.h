// Perfect prediction live, for tests. A run under PINION_TEST_REHEARSAL=PREFIX keeps when each use begins in
// PREFIX.<rank>; of several such runs each interval counts as in the quickest. A run under
// PINION_TEST_SCHEDULE=PREFIX hands these times to Pinion's predictor (predict/played_schedule.h). Rehearsals
// are made without Pinion, whose waits for registration would be part of the times. One thread.
#pragma once

#include <string>
#include <vector>

#include "predict/played_schedule.h"
#include "steps.h"

namespace play {

class Rehearsal {
 public:
  /// Makes the rehearsal of the rank that plays `steps`, with real addresses. The error: the environment
  /// names a schedule, and there is no rehearsal of this program.
  Error prepare(const Steps& steps, int rank);
  ~Rehearsal();

  /// The messages of this step begin now.
  void begin(const Step& step);
  /// Keeps what was rehearsed.
  Error finish() const;

 private:
  Error read(std::vector<Duration>& intervals) const;

  std::string kept_, handed_;  ///< paths; each may be empty
  std::vector<Range> uses_;    ///< in order
  pinion::PlayedSchedule schedule_;
  std::vector<pinion::Time> begun_;  ///< of a rehearsal
  std::size_t next_ = 0;             ///< use
};

}  // namespace play
