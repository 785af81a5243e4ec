// The arenas of a run's processes (placement/arena_figures.h), as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "cli/report/verdict.h"
#include "placement/arena_figures.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// Sums over the processes of these logs' directories.
ArenaFigures arena_of(const std::vector<std::string>& logs);
/// One sentence; empty where no process had an arena.
std::string arena_text(const ArenaFigures& figures);
/// Judges a run whose arenas served requests. These leave no records, so it compares with no strategy.
Verdict arena_verdict(const runlog::Report& report, const ArenaFigures& figures);
/// Null where no process had an arena.
Json to_json(const ArenaFigures& figures);

}  // namespace pinion::cli
