// `pinion report`: the contents of logs, as text, JSON, a page, a plot, a trace or metrics.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/error_line.h"
#include "cli/output_file.h"
#include "cli/report/hugepages.h"
#include "cli/report/judgement.h"
#include "cli/report/plot.h"
#include "cli/report/prometheus.h"
#include "cli/report/report_html.h"
#include "cli/report/report_json.h"
#include "cli/report/report_plots.h"
#include "cli/report/report_text.h"
#include "cli/report/runs_table.h"
#include "cli/report/source_places.h"
#include "cli/report/trace.h"
#include "cli/text.h"
#include "runlog/analysis.h"

namespace pinion::cli {

namespace {

struct Arguments {
  std::vector<std::string> logs;
  bool all = false, json = false;
  std::string trace, html, plot, prometheus;
};

void save_trace(const std::string& path, const runlog::Report& report, const std::vector<std::string>& logs,
                const SiteText& site_text) {
  Error unread;
  write_file(path, [&](std::FILE* file) { unread = write_trace(file, report, logs, site_text); });
  if (unread) throw UsageError(unread.message);
}

/// A panel for each node and, of several ranks, for each rank.
void save_plot(const std::string& path, const runlog::Report& report, const Strategies* strategies) {
  constexpr std::size_t kTitle = 90;
  Plot plot{"Registered memory: " + report.command.substr(0, kTitle), 2,
            node_panels(report, strategies, kMostNodePanels)};
  if (report.per_rank.size() > 1)
    for (PlotPanel& panel : rank_panels(report, kMostRankPanels)) plot.panels.push_back(std::move(panel));
  if (plot.panels.size() == 1) plot.columns = 1;
  draw(plot, path);
}

void save_html(const std::string& path, const runlog::Report& report, const std::vector<std::string>& logs,
               ReportParts parts, const Verdict& verdict, const SiteText& site_text) {
  std::optional<WhatIfGrid> grid;
  if (parts.strategies) grid = what_if_grid(report, logs);
  parts.grid = grid ? &*grid : nullptr;
  write_text(path, report_html(report, parts, verdict, site_text));
}

/// All runs below the directories.
void report_all(const Arguments& arguments) {
  std::vector<std::string> unread;
  const std::vector<KeptRun> runs = runs_in(arguments.logs, unread);
  for (const std::string& message : unread) print_error_line(message);
  if (runs.empty())
    throw UsageError(fmt::format("{}: no run logs (*.plog) here, nor in folders", arguments.logs.front()));
  fmt::print("{}", arguments.json ? dump(runs_json(runs)) : runs_text(runs));
}

/// Names the command that shows the runs in folders; empty: there are none.
std::string folders_text(const std::vector<std::string>& logs) {
  const std::size_t folders = folders_with_logs(logs);
  if (folders == 0) return {};
  return fmt::format("{} in it: pinion report --all {}",
                     plural_text(folders, "folder with a run", "folders with runs"), logs.front());
}

void report(const Arguments& arguments) {
  if (!arguments.plot.empty()) check_plot(arguments.plot);
  runlog::Report result;
  if (const Error error = runlog::analyse(arguments.logs, result)) {
    const std::string folders = error.code == ENOENT ? folders_text(arguments.logs) : "";
    throw UsageError(folders.empty() ? error.message : fmt::format("{}; {}", error.message, folders));
  }
  if (!arguments.prometheus.empty()) write_text(arguments.prometheus, prometheus_text(result));
  SourcePlaces places;
  const SiteText site_text = [&](const runlog::CallSite& site) { return places.text(site); };
  if (!arguments.trace.empty()) save_trace(arguments.trace, result, arguments.logs, site_text);
  const ArenaFigures arena = arena_of(arguments.logs);
  const Judgement judgement =
      judge(result, arguments.logs, arena, typed_program(result.command, result.job_ranks), site_text);
  const Strategies* const simulated = judgement.strategies();
  const LibrariesPart* const held = judgement.held();
  const Verdict& verdict = judgement.verdict;
  const PlacementFigures hugepages = hugepages_of(arguments.logs);
  if (!arguments.plot.empty()) save_plot(arguments.plot, result, simulated);
  if (!arguments.html.empty())
    save_html(arguments.html, result, arguments.logs, {simulated, nullptr, held}, verdict, site_text);
  if (arguments.json) {
    Json json = to_json(result, simulated ? to_json(*simulated) : Json(nullptr), held);
    json["verdict"] = to_json(verdict);
    for (std::size_t i = 0; i < json["call_sites"].size(); ++i)
      json["call_sites"][i]["source"] = site_text(result.call_sites[i]);
    json["hugepages"] = to_json(hugepages);
    json["arena"] = to_json(arena);
    fmt::print("{}", dump(json));
    return;
  }
  fmt::print("{}", report_text(result, simulated, held, verdict, site_text));
  if (const std::string text = hugepages_text(hugepages); !text.empty()) fmt::print("\n{}\n", text);
  if (const std::string text = arena_text(arena); !text.empty()) fmt::print("\n{}\n", text);
  if (const std::string text = folders_text(arguments.logs); !text.empty())
    fmt::print("\n{}: {}\n", arguments.logs.front(), text);
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("report", "Report the memory, time and call sites of a run, from its logs");
  auto arguments = std::make_shared<Arguments>();
  sub->add_option("logs", arguments->logs, "log directories or files of one run")
      ->required()
      ->type_name("DIR");
  sub->add_flag("--json", arguments->json, "one JSON object instead of text")->disable_flag_override();
  CLI::Option* const all =
      sub->add_flag("--all", arguments->all, "a line for each run in the directories, and in their folders")
          ->disable_flag_override();
  sub->add_option("--trace", arguments->trace, "also write a trace for Perfetto or chrome://tracing")
      ->type_name("FILE");
  sub->add_option("--html", arguments->html, "also write a page with plots, for any browser")
      ->type_name("FILE");
  sub->add_option("--plot", arguments->plot, "also draw registered memory over time")
      ->type_name("FILE.svg|png");
  sub->add_option("--prometheus", arguments->prometheus,
                  "also write metrics for the textfile collector of Prometheus' node exporter")
      ->type_name("FILE");
  for (const char* file : {"--trace", "--html", "--plot", "--prometheus"}) all->excludes(file);
  sub->callback([arguments] { arguments->all ? report_all(*arguments) : report(*arguments); });
}

}  // namespace pinion::cli
