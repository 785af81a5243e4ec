// Reports for people to read in a terminal.
#pragma once

#include <string>

#include "runlog/analysis.h"

namespace pinion::cli {

/// A few lines after a run, each begun with "pinion: ".
std::string summary_text(const runlog::Report& report);

/// All sections.
std::string report_text(const runlog::Report& report);

}  // namespace pinion::cli
