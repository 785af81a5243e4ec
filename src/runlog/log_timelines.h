// The bytes that a log's process held over time, and would have held under an oracle and under leave-pinned
// (analysis.h has the definitions). The time lines may extend beyond the run. Pure functions; any thread.
#pragma once

#include "runlog/reader.h"
#include "runlog/timeline.h"

namespace pinion::runlog {

/// Returns the registered bytes over time, from events; where the log lacks some, from the time series that
/// was kept online.
Timeline registered_timeline(const Log& log);
Timeline oracle_timeline(const Log& log);
Timeline leave_pinned_timeline(const Log& log);

/// Bytes that peers hold (firehose), and the number of holds.
struct HoldsTimeline {
  std::uint64_t count = 0;
  Timeline bytes;
};
HoldsTimeline holds_timeline(const Log& log);

/// Returns when the events of a log end; kNever for a complete log.
Time covered_until(const Log& log);

}  // namespace pinion::runlog
