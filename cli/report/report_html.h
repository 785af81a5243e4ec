// A report as one page of HTML: no network, no script. It follows the reader's choice of light or dark, fits
// a phone, and prints. Texts of logs are untrusted: each is escaped. Pure functions.
#pragma once

#include <string>

#include "cli/report/libraries_part.h"
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

std::string report_html(const runlog::Report& report, const ReportParts& parts, const Verdict& verdict,
                        const SiteText& site_text);

}  // namespace pinion::cli
