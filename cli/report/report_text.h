// Reports for people to read in a terminal.
#pragma once

#include <string>

#include "cli/report/libraries_part.h"
#include "cli/report/verdict.h"
#include "cli/simulate/strategies.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// A few lines after a run, each begun with "pinion: "; the verdict is the last. `strategies`: null where
/// nothing could be simulated.
std::string summary_text(const runlog::Report& report, const Strategies* strategies, const Verdict& verdict);

/// All sections, the verdict first. `strategies`: as above. `held`: by libraries; null: not known.
std::string report_text(const runlog::Report& report, const Strategies* strategies, const LibrariesPart* held,
                        const Verdict& verdict, const SiteText& site_text);

}  // namespace pinion::cli
