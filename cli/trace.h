// Run logs as trace-event JSON, which Perfetto and chrome://tracing show: a process a rank, its leases and
// its registrations as spans, its registered bytes as a counter.
#pragma once

#include <cstdio>
#include <vector>

#include "runlog/reader.h"

namespace pinion::cli {

void write_trace(std::FILE* out, const std::vector<runlog::Log>& logs);

}  // namespace pinion::cli
