#include "cli/report/report_plots.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/report_notes.h"
#include "cli/report/report_tables.h"
#include "lease/engine_options.h"

namespace pinion::cli {

namespace {

using runlog::MemorySeries;
using runlog::Report;

constexpr double kMiB = 1 << 20;
/// A limit far above everything else would flatten the plot.
constexpr double kLimitInSight = 1.5;
/// Bounds a simulated curve, however much longer than the run it is.
constexpr double kMostBins = 4096;

/// Steps: a bin has its value from its begin to its end.
PlotLine line_of(const char* name, const std::vector<std::uint64_t>& bins, double bin_seconds,
                 const std::string& strategy = {}) {
  PlotLine line{name, {}, false, strategy};
  for (std::size_t i = 0; i < bins.size(); ++i) {
    const double value = static_cast<double>(bins[i]) / kMiB;
    if (i > 0 && bins[i] == bins[i - 1]) line.points.pop_back();
    if (i == 0 || bins[i] != bins[i - 1])
      line.points.emplace_back(bin_seconds * static_cast<double>(i), value);
    line.points.emplace_back(bin_seconds * static_cast<double>(i + 1), value);
  }
  return line;
}

/// A run that was only measured registered nothing. `helper`: simulated; null: none is shown.
PlotPanel memory_panel(const Report& r, const std::string& title, const MemorySeries& series,
                       std::uint64_t limit, const simulate::Result* helper = nullptr) {
  const double bin_seconds = static_cast<double>(r.series_bin) * 1e-9;
  PlotPanel panel{title, "seconds", "MiB registered", {}, Scale::linear, Scale::linear, false};
  if (!is_measured(r)) {
    panel.lines.push_back(line_of("this run, mean", series.registered.mean, bin_seconds, r.retention));
    panel.lines.push_back(line_of("this run, peak", series.registered.peak, bin_seconds, r.retention));
  }
  if (helper != nullptr) {
    const auto seconds = std::max(helper->seconds, 1e-9);
    const auto bins = static_cast<std::size_t>(std::min(seconds / bin_seconds + 1, kMostBins));
    panel.lines.push_back(
        line_of("helper, simulated, mean", helper->timeline.bins(0, r.series_bin, bins).mean, bin_seconds));
  }
  if (!series.leave_pinned.mean.empty()) {
    panel.lines.push_back(line_of("leave-pinned", series.leave_pinned.mean, bin_seconds));
    panel.lines.push_back(line_of("oracle", series.oracle.mean, bin_seconds));
  }
  double most = 0, end = 0;
  for (const PlotLine& line : panel.lines)
    for (const auto& [time, value] : line.points) {
      most = std::max(most, value);
      end = std::max(end, time);
    }
  const double bound = static_cast<double>(limit) / kMiB;
  if (limit > 0 && bound <= kLimitInSight * most)
    panel.lines.push_back({"limit", {{0, bound}, {end, bound}}, true});
  return panel;
}

std::uint64_t node_limit_of(const Report& r, const runlog::NodeReport& node) {
  const std::uint64_t sum = r.limit_bytes * node.ranks;
  const std::uint64_t of_node = recorded_options(r.options).node_limit;
  return of_node == 0 ? sum : sum == 0 ? of_node : std::min(sum, of_node);
}

}  // namespace

std::vector<PlotPanel> node_panels(const Report& r, const Strategies* strategies, std::size_t most) {
  std::vector<PlotPanel> panels;
  const bool has_curve = strategies != nullptr && is_measured(r) && r.nodes.size() == 1 && r.series_bin > 0 &&
                         strategies->ranks == strategies->of_ranks && strategies->covers_seconds <= 0;
  const simulate::Result* const helper = has_curve ? row_of(strategies, RetentionKind::helper) : nullptr;
  for (std::size_t i = 0; i < std::min(most, r.nodes.size()); ++i)
    panels.push_back(memory_panel(r, fmt::format("node {}", r.nodes[i].host), r.nodes[i].series,
                                  node_limit_of(r, r.nodes[i]), helper));
  return panels;
}

std::vector<PlotPanel> rank_panels(const Report& r, std::size_t most) {
  std::vector<const runlog::RankReport*> ranks;
  for (const runlog::RankReport& rank : r.per_rank) ranks.push_back(&rank);
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const auto* a, const auto* b) { return a->registered.peak > b->registered.peak; });
  ranks.resize(std::min(most, ranks.size()));
  std::vector<PlotPanel> panels;
  for (const runlog::RankReport* rank : ranks)
    panels.push_back(memory_panel(r, rank_text(*rank), rank->series, r.limit_bytes));
  return panels;
}

std::vector<PlotPanel> grid_panels(const Report& r, const WhatIfGrid& grid) {
  std::uint64_t unlimited = 0;
  for (const runlog::RankReport& rank : r.per_rank)
    unlimited = std::max(unlimited, rank.registered.leave_pinned_peak);
  const char* const x = "limit of a process, MiB (last point: no limit)";
  PlotPanel memory{"Registered memory, mean", x, "MiB", {}, Scale::linear, Scale::linear};
  PlotPanel time{"Seconds added", x, "ms", {}, Scale::linear, Scale::linear};
  bool is_limited = false;
  for (const WhatIfGrid::Line& line : grid.lines) {
    PlotLine held{line.name, {}}, added{line.name, {}};
    for (const auto& [limit, result] : line.points) {
      const double at = static_cast<double>(limit ? limit : unlimited) / kMiB;
      held.points.emplace_back(at, result.registered.mean / kMiB);
      added.points.emplace_back(at, result.cost.added() * 1e3);
      is_limited = is_limited || limit != 0;
    }
    memory.lines.push_back(std::move(held));
    time.lines.push_back(std::move(added));
  }
  if (!is_limited) return {};
  return {std::move(memory), std::move(time)};
}

}  // namespace pinion::cli
