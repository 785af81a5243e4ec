// The plots of a report: registered memory over time, and the memory and cost of other strategies.
// Pure functions.
#pragma once

#include <vector>

#include "cli/report/plot.h"
#include "cli/simulate/strategies.h"
#include "runlog/analysis.h"

namespace pinion::cli {

// Bounds on panels: a job may have thousands.
constexpr std::size_t kMostNodePanels = 8, kMostRankPanels = 16;

/// One for each node, highest peak first, `most` at most. That of a run on one node that was only measured
/// has the helper's curve too, as simulated. `strategies`: null where nothing was.
std::vector<PlotPanel> node_panels(const runlog::Report& report, const Strategies* strategies,
                                   std::size_t most);
/// Returns a panel for each rank.
std::vector<PlotPanel> rank_panels(const runlog::Report& report, std::size_t most);

/// Mean registered memory and seconds added against the limit; empty where no limit could bind.
std::vector<PlotPanel> grid_panels(const runlog::Report& report, const WhatIfGrid& grid);

}  // namespace pinion::cli
