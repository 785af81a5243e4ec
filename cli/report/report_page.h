// What the page and the plots of a report show, as JSON for python/pinion: the tables of the report's text,
// and the curves that only the simulator has. Texts of logs are untrusted: who shows them escapes them. Pure
// functions.
#pragma once

#include "cli/report/libraries_part.h"
#include "cli/report/report_json.h"
#include "cli/report/verdict.h"
#include "cli/simulate/strategies.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// The parts beside the run's own figures; null: not known.
struct ReportParts {
  const Strategies* strategies;
  const WhatIfGrid* grid;
  const LibrariesPart* held;
};

/// {report, helper, tables{}, grid}. `json`: of `report`. `helper` has the helper's mean in bins as wide as
/// those of the report's series, as simulated for a run on one node that was only measured.
Json page_json(const runlog::Report& report, Json json, const ReportParts& parts, const SiteText& site_text);

}  // namespace pinion::cli
