// Reports for people to read in a terminal.
#pragma once

#include <string>

#include "libraries_part.h"
#include "runlog/analysis.h"
#include "strategies.h"

namespace pinion::cli {

/// A few lines after a run, each begun with "pinion: ". `strategies`: as below.
std::string summary_text(const runlog::Report& report, const Strategies* strategies);

/// Spent and allowed on the program's threads and by the helper, and the sum that was spent: "1.2 of 20 ms on
/// threads + 3.4 of 30 ms by the helper = 4.6 ms".
std::string bounds_text(const runlog::TimeBudgetUse& threads, const runlog::HelperShareUse& helper);

/// All sections. `strategies`: of a run that was only measured; else null. `held`: by libraries; null: not
/// known.
std::string report_text(const runlog::Report& report, const Strategies* strategies,
                        const LibrariesPart* held);

}  // namespace pinion::cli
