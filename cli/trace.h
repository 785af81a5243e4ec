// Run logs as trace-event JSON, which Perfetto and chrome://tracing show: a process a rank, its leases and
// its registrations as spans, its registered bytes as a counter.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace pinion::cli {

/// Times count from `origin`. Reads the logs of `paths` one after another.
Error write_trace(std::FILE* out, Time origin, const std::vector<std::string>& paths);

}  // namespace pinion::cli
