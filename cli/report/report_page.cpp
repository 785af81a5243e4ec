#include "cli/report/report_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"
#include "cli/report/gpu_copies.h"
#include "cli/report/report_tables.h"
#include "cli/text.h"

namespace pinion::cli {

namespace {

using runlog::Report;

/// Bounds a simulated curve, however much longer than the run it is.
constexpr double kMostBins = 4096;

Json part(const std::string& title, const Table& table, const std::vector<std::string>& notes = {}) {
  const auto& rows = table.rows();
  return {{"title", title},
          {"columns", rows.front()},
          {"rows", std::vector(rows.begin() + 1, rows.end())},
          {"notes", notes}};
}

/// Parts of figures that none has are left out.
Json part(const std::string& title, const std::vector<Figure>& figures,
          const std::vector<std::string>& notes = {}) {
  const auto any = [&](std::string Figure::*one) {
    return std::any_of(figures.begin(), figures.end(), [&](const Figure& f) { return !(f.*one).empty(); });
  };
  Json rows = Json::array();
  for (const Figure& figure : figures) {
    Json row = {figure.name, figure.value};
    for (const auto one : {&Figure::share, &Figure::meaning})
      if (any(one)) row.push_back(figure.*one);
    rows.push_back(std::move(row));
  }
  return {{"title", title}, {"rows", std::move(rows)}, {"notes", notes}};
}

Json call_sites(const Report& r, const SiteText& site_text) {
  if (!r.call_sites_known())
    return {{"title", "Call sites"}, {"notes", {"Not available: their events are missing."}}};
  Json rows = Json::array();
  for (std::size_t i = 0; i < sites_shown(r); ++i)
    rows.push_back({site_text(r.call_sites[i]), call_site_figures(r, r.call_sites[i])});
  return {{"title", call_sites_title(r)}, {"rows", std::move(rows)}};
}

void add_strategies(Json& tables, const Report& r, const ReportParts& parts) {
  if (parts.strategies == nullptr) return;
  tables["strategies"] =
      part("What each strategy would hold and cost", strategies_table(*parts.strategies, r),
           {fmt::format("These figures are {}.", strategies_title(*parts.strategies))});
  if (const Table table = what_if_table(*parts.strategies); table.rows().size() > 1)
    tables["what_if"] = part(kWhatIfMeaning, table);
  if (parts.grid == nullptr) return;
  std::vector<std::string> notes;
  if (!parts.grid->is_whole)
    notes.emplace_back("Rows are missing: the simulation took more time than a report may.");
  tables["grid"] = part("What if: strategies, limits and time budgets", grid_table(*parts.grid), notes);
}

Json tables_of(const Report& r, const ReportParts& parts, const SiteText& site_text) {
  Json tables = {{"registered", part(registered_title(r), registered_table(r), {kRegisteredMeaning})},
                 {"time", part(kTimeTitle, time_figures(r))},
                 {"call_sites", call_sites(r, site_text)},
                 {"transfers", part("Transfers", transfer_figures(r), {device_calls_text(r)})},
                 {"ranks", part("Ranks", ranks_table(r))},
                 {"run", part("Run", run_figures(r, parts.held))}};
  tables["prediction"] =
      r.prediction.reuses == 0
          ? Json{{"title", "Prediction of the next use"}, {"notes", {"No region was used twice."}}}
          : part(prediction_title(r), prediction_table(r.prediction), {kPredictionMeaning});
  if (r.copies.any()) tables["copies"] = part(kCopiesTitle, gpu_copies_table(r.copies));
  if (const std::vector<std::string> notes = domain_descriptions(r); !notes.empty())
    tables["domains"] = part("Domains, sums over their ranks", domains_table(r), notes);
  add_strategies(tables, r, parts);
  return tables;
}

Json helper_curve(const Report& r, const Strategies* strategies) {
  const bool has_curve = strategies != nullptr && is_measured(r) && r.nodes.size() == 1 && r.series_bin > 0 &&
                         strategies->ranks == strategies->of_ranks && strategies->covers_seconds <= 0;
  const simulate::Result* const helper = has_curve ? row_of(strategies, RetentionKind::helper) : nullptr;
  if (helper == nullptr) return nullptr;
  const double bins = std::max(helper->seconds, 1e-9) * 1e9 / static_cast<double>(r.series_bin) + 1;
  return helper->timeline.bins(0, r.series_bin, static_cast<std::size_t>(std::min(bins, kMostBins))).mean;
}

/// A limit of 0 is none.
Json grid_json(const WhatIfGrid* grid) {
  Json lines = Json::array();
  if (grid == nullptr) return lines;
  for (const WhatIfGrid::Line& line : grid->lines) {
    Json points = Json::array();
    for (const auto& [limit, result] : line.points)
      points.push_back(
          {{"limit", limit}, {"mean", result.registered.mean}, {"seconds_added", result.cost.added()}});
    lines.push_back({{"name", line.name}, {"points", std::move(points)}});
  }
  return lines;
}

}  // namespace

Json page_json(const Report& r, Json json, const ReportParts& parts, const SiteText& site_text) {
  return {{"report", std::move(json)},
          {"reported_by", PINION_VERSION},
          {"helper", helper_curve(r, parts.strategies)},
          {"tables", tables_of(r, parts, site_text)},
          {"grid", grid_json(parts.grid)}};
}

}  // namespace pinion::cli
