// Run logs as trace-event JSON, which Perfetto and chrome://tracing show: a process a rank in order of rank,
// its leases and its registrations as spans, late ones marked; registered bytes, leave-pinned, oracle and
// limit as counters.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/report/verdict.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// `report`: of the same logs. Times count from its start. Reads the logs of `paths` one after another.
Error write_trace(std::FILE* out, const runlog::Report& report, const std::vector<std::string>& paths,
                  const SiteText& site_text);

}  // namespace pinion::cli
