// The figures of a report as rows of text, for the terminal (report_text.h) and the page (report_page.h).
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/report/libraries_part.h"
#include "cli/text.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// A named value with an addition; an empty part is left out.
struct Figure {
  std::string name, value, share, meaning;
};

bool has_rank(const runlog::Report& report);  ///< it is of an MPI program
bool acts(const runlog::Report& report);      ///< its retention is helper
bool is_measured(const runlog::Report& report);

/// "helper (predictor adaptive)"
std::string retention_text(const runlog::Report& report);
/// Returns what is spent, and what is allowed: "1.2 ms of 20 ms".
std::string spent_text(const runlog::TimeBudgetUse& budget);

/// The run and its conditions. `held`: by libraries; null: not known.
std::vector<Figure> run_figures(const runlog::Report& report, const LibrariesPart* held);
std::vector<Figure> transfer_figures(const runlog::Report& report);
/// "12 registrations, 11 deregistrations"
std::string device_calls_text(const runlog::Report& report);

extern const char* const kTimeTitle;
std::vector<Figure> time_figures(const runlog::Report& report);

std::string registered_title(const runlog::Report& report);
Table registered_table(const runlog::Report& report);
extern const char* const kRegisteredMeaning;

std::string prediction_title(const runlog::Report& report);
/// For a run that used a region twice.
Table prediction_table(const runlog::Prediction& prediction);
extern const char* const kPredictionMeaning;

/// Domains that a run used: of more than one, else without rows.
Table domains_table(const runlog::Report& report);
std::vector<std::string> domain_descriptions(const runlog::Report& report);
Table ranks_table(const runlog::Report& report);

std::size_t sites_shown(const runlog::Report& report);
std::string call_sites_title(const runlog::Report& report);
/// "3 transfers of 24.0 MiB, 1 miss (1 late); 1.20 ms lost"
std::string call_site_figures(const runlog::Report& report, const runlog::CallSite& site);

}  // namespace pinion::cli
