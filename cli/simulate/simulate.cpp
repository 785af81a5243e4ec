// `pinion simulate`: the cost of a recorded run under other strategies, limits, NICs and numbers of ranks, a
// row for each combination of the values given.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/error_line.h"
#include "cli/option_flags.h"
#include "cli/parser.h"
#include "cli/progress.h"
#include "cli/simulate/rows.h"
#include "cli/text.h"

namespace pinion::cli {

void print_rows(const std::vector<SimulateRow>& rows, const Verdict& verdict, bool json,
                const std::string& text) {
  if (!json) {
    const std::string advice = to_text(verdict, "");
    fmt::print("{}{}{}", text, advice.empty() ? "" : "\n", advice);
    return;
  }
  Json list = Json::array();
  for (const SimulateRow& row : rows) list.push_back(to_json(row));
  fmt::print(
      "{}",
      dump({{"schema", "pinion-simulate-1"}, {"rows", std::move(list)}, {"verdict", to_json(verdict)}}));
}

namespace {

void run(const SimulateArguments& arguments) {
  if (arguments.logs.empty()) throw UsageError("nothing to simulate: give logs");
  const simulate::Workload workload = log_workload_of(arguments);
  std::vector<SimulateRow> rows;
  add_rows(rows, arguments, workload);
  Progress progress("pinion simulate");
  for (SimulateRow& row : rows) {
    progress.step(fmt::format("row {} of {}: {}", &row - rows.data() + 1, rows.size(), strategy_text(row)));
    simulate_row(row);
  }
  progress.clear();
  bound_oracles(rows);
  print_rows(rows, verdict_of(rows), arguments.json, arguments.json ? "" : rows_text(rows));
}

/// Options of the version before: those of patterns are papers/'s now.
void add_moved_options(CLI::App& sub) {
  const auto refuse = [](const std::string&) {
    throw UsageError(
        "patterns are simulated in a checkout: `cmake --build build --target papers`, then "
        "`build/libexec/pinion/papers simulate`");
  };
  for (const char* name : {"--pattern", "--study"})
    sub.add_option_function<std::string>(name, refuse)->trigger_on_parse()->group("");
  const auto warn = [](const char* name) {
    print_error_line(
        fmt::format("option {} has no effect any more: it is for patterns and studies of papers/", name));
  };
  for (const char* name : {"--noise", "--seed", "--iterations", "--gflops", "--bandwidth", "--placement",
                           "--skew", "--policy", "--policy-every", "--time-slice", "--window",
                           "--period-window", "--poll", "--wake-latency", "--profile"})
    sub.add_option_function<std::string>(name, [=](const std::string&) { warn(name); })->group("");
  sub.add_flag_callback("--intranode", [=] { warn("--intranode"); })->group("");
}

void add_number(CLI::App* sub, const char* name, int& into, const char* text) {
  sub->add_option(name, into, text)->check(CLI::Range(1, 1 << 20))->type_name("N");
}

}  // namespace

void add_rows_options(CLI::App& sub, SimulateArguments& arguments) {
  sub.add_option("logs", arguments.logs, "log directories or files of one run")->type_name("DIR");
  for (Dimension& dimension : arguments.dimensions)
    add_list(sub, "--" + dimension.option, dimension.values, dimension.text);
  add_retired_options(sub);
  add_number(&sub, "--ranks", arguments.ranks, "ranks to make of a log's: it is repeated as often as needed");
  add_number(&sub, "--ppn", arguments.ppn, "ranks on a node [as recorded]");
  add_number(&sub, "--cores", arguments.cores, "cores of a node [as recorded; one for each rank and helper]");
  sub.add_flag("--json", arguments.json, "one JSON object instead of a table")->disable_flag_override();
}

void add_simulate(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("simulate", "Replay a run under other strategies");
  auto arguments = std::make_shared<SimulateArguments>();
  add_rows_options(*sub, *arguments);
  add_moved_options(*sub);
  sub->callback([arguments] { run(*arguments); });
}

}  // namespace pinion::cli
