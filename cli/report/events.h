// The events of logs as lines of JSON, for frames (pinion.Run) and for traces (python/pinion/trace.py). Reads
// one log at a time.
#pragma once

#include <cstdio>

#include "base/error.h"
#include "cli/report/verdict.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// Writes, for each process of the report's logs, an object with its name and its registered bytes over time,
/// and an object for each of its events. Times are microseconds of the run. Returns an error of the first log
/// that cannot be read any more.
Error write_events(std::FILE* out, const runlog::Report& report, const std::vector<std::string>& paths,
                   const SiteText& site_text);

}  // namespace pinion::cli
