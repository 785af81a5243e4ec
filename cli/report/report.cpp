// `pinion report`: the contents of logs, as text or JSON; by parts in Python, as a page, a plot, a trace or
// metrics.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/error_line.h"
#include "cli/output_file.h"
#include "cli/python_part.h"
#include "cli/report/events.h"
#include "cli/report/hugepages.h"
#include "cli/report/judgement.h"
#include "cli/report/report_json.h"
#include "cli/report/report_page.h"
#include "cli/report/report_text.h"
#include "cli/report/runs_table.h"
#include "cli/report/source_places.h"
#include "cli/text.h"
#include "runlog/analysis.h"

namespace pinion::cli {

namespace {

struct Arguments {
  std::vector<std::string> logs;
  bool all = false, json = false, now = false;
  std::string events, trace, html, plot, prometheus;
};

using Write = std::function<void(std::FILE*)>;

/// Keeps what a part in Python makes of its input.
void save(const std::string& path, const CommandLine& part, const Write& write) {
  write_file(path, [&](std::FILE* file) { PythonChild(part, ::fileno(file)).finish(write); });
}

/// The outputs of parts in Python. All are found before long work begins.
struct Outputs {
  explicit Outputs(const Arguments& arguments) {
    const PythonPackage matplotlib{"matplotlib", "python3-matplotlib"}, jinja{"jinja2", "python3-jinja2"};
    if (!arguments.prometheus.empty()) metrics = python_part("--prometheus", "metrics");
    if (!arguments.trace.empty()) trace = python_part("--trace", "trace");
    if (!arguments.html.empty()) page = python_part("--html", "page", {}, {matplotlib, jinja});
    if (!arguments.plot.empty())
      plot = python_part("--plot", "plots", {kind_of_plot(arguments.plot)}, {matplotlib});
  }

  CommandLine metrics, trace, page, plot;

 private:
  static std::string kind_of_plot(const std::string& file) {
    const std::string kind = std::filesystem::path(file).extension();
    if (kind != ".svg" && kind != ".png" && kind != ".pdf")
      throw UsageError(fmt::format("--plot: '{}' ends in neither .svg nor .png nor .pdf", file));
    return kind.substr(1);
  }
};

/// Writes the events, and what the trace part makes of them.
void save_events(const Arguments& arguments, const Outputs& parts, const runlog::Report& report,
                 const SiteText& site_text) {
  Error unread;
  const Write write = [&](std::FILE* file) {
    unread = write_events(file, report, arguments.logs, site_text);
  };
  if (!arguments.events.empty()) write_file(arguments.events, write);
  if (!arguments.trace.empty()) save(arguments.trace, parts.trace, write);
  if (unread) throw UsageError(unread.message);
}

Write written(Json json) {
  return [json = std::move(json)](std::FILE* file) { fmt::print(file, "{}\n", line(json)); };
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

runlog::Report analysed(const std::vector<std::string>& logs) {
  runlog::Report result;
  if (const Error error = runlog::analyse(logs, result)) {
    const std::string folders = error.code == ENOENT ? folders_text(logs) : "";
    throw UsageError(folders.empty() ? error.message : fmt::format("{}; {}", error.message, folders));
  }
  return result;
}

/// The counters of processes, in a time that is independent of the run's length.
void report_now(const Arguments& arguments) {
  std::vector<runlog::Log> states;
  const Error error =
      runlog::for_each_state(arguments.logs, [&](runlog::Log&& log) { states.push_back(std::move(log)); });
  if (error) throw UsageError(error.message);
  fmt::print("{}\n", line(to_json(runlog::analyse(states), nullptr, nullptr)));
}

void report(const Arguments& arguments) {
  const Outputs parts(arguments);
  runlog::Report result = analysed(arguments.logs);
  SourcePlaces places;
  const SiteText site_text = [&](const runlog::CallSite& site) { return places.text(site); };
  save_events(arguments, parts, result, site_text);
  const ArenaFigures arena = arena_of(arguments.logs);
  const Judgement judgement =
      judge(result, arguments.logs, arena, typed_program(result.command, result.job_ranks), site_text);
  const Strategies* const simulated = judgement.strategies();
  const LibrariesPart* const held = judgement.held();
  const PlacementFigures hugepages = hugepages_of(arguments.logs);
  Json json = to_json(result, simulated ? to_json(*simulated) : Json(nullptr), held);
  json["verdict"] = to_json(judgement.verdict);
  for (std::size_t i = 0; i < json["call_sites"].size(); ++i)
    json["call_sites"][i]["source"] = site_text(result.call_sites[i]);
  json["hugepages"] = cli::to_json(hugepages);
  json["arena"] = cli::to_json(arena);
  if (!arguments.prometheus.empty()) save(arguments.prometheus, parts.metrics, written(json));
  if (!arguments.plot.empty())
    save(arguments.plot, parts.plot, written(page_json(result, json, {simulated, nullptr, held}, site_text)));
  if (!arguments.html.empty()) {
    std::optional<WhatIfGrid> grid;
    if (simulated) grid = what_if_grid(result, arguments.logs);
    const ReportParts shown{simulated, grid ? &*grid : nullptr, held};
    save(arguments.html, parts.page, written(page_json(result, json, shown, site_text)));
  }
  if (arguments.json) {
    fmt::print("{}", dump(json));
    return;
  }
  fmt::print("{}", report_text(result, simulated, held, judgement.verdict, site_text));
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
  CLI::Option* const json =
      sub->add_flag("--json", arguments->json, "one JSON object instead of text")->disable_flag_override();
  CLI::Option* const now =
      sub->add_flag("--now", arguments->now, "with --json: counters alone, at once, also of a long run")
          ->disable_flag_override()
          ->needs(json);
  CLI::Option* const all =
      sub->add_flag("--all", arguments->all, "a line for each run in the directories, and in their folders")
          ->disable_flag_override();
  sub->add_option("--events", arguments->events, "also write each event as a line of JSON")
      ->type_name("FILE");
  sub->add_option("--trace", arguments->trace, "also write a trace for Perfetto or chrome://tracing")
      ->type_name("FILE");
  sub->add_option("--html", arguments->html, "also write a page with plots, for any browser")
      ->type_name("FILE");
  sub->add_option("--plot", arguments->plot, "also draw registered memory over time")
      ->type_name("FILE.svg|png|pdf");
  sub->add_option("--prometheus", arguments->prometheus,
                  "also write metrics for the textfile collector of Prometheus' node exporter")
      ->type_name("FILE");
  now->excludes(all);
  for (const char* file : {"--events", "--trace", "--html", "--plot", "--prometheus"})
    for (CLI::Option* const alone : {all, now}) alone->excludes(file);
  sub->callback([arguments] {
    arguments->all ? report_all(*arguments) : arguments->now ? report_now(*arguments) : report(*arguments);
  });
}

}  // namespace pinion::cli
