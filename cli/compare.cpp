// `pinion compare`: one program under several strategies, runs interleaved so that drift of the machine meets
// all of them alike; one table of medians.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "command.h"
#include "engine/acts.h"
#include "engine/process.h"
#include "forward.h"
#include "launch.h"
#include "log_directory.h"
#include "option_flags.h"
#include "report_json.h"
#include "report_text.h"
#include "runlog/analysis.h"
#include "text.h"

namespace pinion::cli {

namespace {

constexpr const char* kOff = "off";  // the program without Pinion, for its wall time

struct Arguments {
  OptionFlags flags;
  std::vector<std::string> retentions{"on-demand", "leave-pinned", "helper"};
  unsigned repeat = 3;
  std::string log = "pinion-compare.logs";
  bool json = false;
  bool no_nic = false;  ///< nothing registers with a NIC here: the device is an emulated one
  CommandLine command;
};

struct Run {
  std::string logs;
  double elapsed = 0;                    ///< of the command, launch included
  std::optional<runlog::Report> report;  ///< absent where no rank left a log
};

struct Strategy {
  std::string retention;
  std::vector<Run> runs;
};

struct Spread {
  double median, least, most;
};

template <class F>
Spread spread(const std::vector<Run>& runs, F&& value) {
  std::vector<double> values;
  for (const Run& run : runs) values.push_back(value(run));
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

template <class F>
double median(const Strategy& strategy, F&& of_report) {
  return spread(strategy.runs, [&](const Run& run) { return static_cast<double>(of_report(*run.report)); })
      .median;
}

bool reported(const Strategy& strategy) {
  return std::all_of(strategy.runs.begin(), strategy.runs.end(),
                     [](const Run& run) { return run.report.has_value(); });
}

runlog::RegisteredBytes medians_of_bytes(const Strategy& strategy) {
  const auto of = [&](auto member) {
    return median(strategy, [&](const auto& report) { return report.registered().*member; });
  };
  using B = runlog::RegisteredBytes;
  const auto count = [&](auto member) { return static_cast<std::uint64_t>(of(member)); };
  B b;
  b.peak = count(&B::peak);
  b.mean = of(&B::mean);
  b.oracle_peak = count(&B::oracle_peak);
  b.oracle_mean = of(&B::oracle_mean);
  b.leave_pinned_peak = count(&B::leave_pinned_peak);
  b.leave_pinned_mean = of(&B::leave_pinned_mean);
  b.bounds_known = std::all_of(strategy.runs.begin(), strategy.runs.end(),
                               [](const Run& run) { return run.report->registered().bounds_known; });
  return b;
}

runlog::TimeBudgetUse medians_of_budget(const Strategy& s) {
  return {median(s, [](const auto& r) { return r.budget.allowed; }),
          median(s, [](const auto& r) { return r.budget.spent; }),
          static_cast<std::uint64_t>(median(s, [](const auto& r) { return r.budget.refused; }))};
}

runlog::HelperShareUse medians_of_share(const Strategy& s) {
  return {median(s, [](const auto& r) { return r.helper_share.allowed; }),
          median(s, [](const auto& r) { return r.helper_share.spent; })};
}

bool all_reported(const std::vector<Strategy>& strategies) {
  return std::all_of(strategies.begin(), strategies.end(), reported);
}

Spread elapsed(const Strategy& strategy) {
  return spread(strategy.runs, [](const Run& run) { return run.elapsed; });
}

// From MPI_Init to MPI_Finalize, which leaves the launcher's own time out.
Spread run_length(const Strategy& strategy) {
  return spread(strategy.runs, [](const Run& run) { return run.report->wall_seconds; });
}

Run run_once(const Arguments& arguments, const std::string& retention, const std::string& directory) {
  Run run;
  run.logs = prepare_log_directory(directory);
  const std::string output = run.logs + "/output.txt";
  CommandLine command = arguments.command;
  Environment environment;
  if (retention == kOff) {
    environment["PINION"] = kOff;
  } else {
    OptionFlags flags = arguments.flags;
    flags.set("retention", retention);
    flags.set("log", run.logs);
    environment = with_pinion(flags.options());
    environment[kRunVariable] = new_run_name();
    forward_to_ranks(environment, command);
  }
  const Time start = monotonic_now();
  const int status = run_and_wait(command, environment, output);
  run.elapsed = static_cast<double>(monotonic_now() - start) * 1e-9;
  if (status != 0)
    throw Failure(fmt::format("{} failed under {} with exit status {}; its output is in {}",
                              arguments.command.front(), retention, status, output));
  if (retention == kOff) return run;
  runlog::Report report;
  const Error error = runlog::analyse({run.logs}, report);
  if (error && error.code != ENOENT) throw Failure(error.message);
  if (!error) run.report = std::move(report);
  return run;
}

std::string pair_text(double peak, double mean) { return bytes_text(peak) + " / " + bytes_text(mean); }

std::string misses_text(const Strategy& s) {
  const auto count = [&](auto member) {
    return count_text(
        static_cast<std::uint64_t>(median(s, [&](const auto& r) { return r.acquires.*member; })));
  };
  std::string text = count(&runlog::Acquires::misses);
  std::string detail = fmt::format("{} late", count(&runlog::Acquires::late));
  if (const std::string bounced = count(&runlog::Acquires::bounced); bounced != "0")
    detail += ", " + bounced + " bounced";
  return fmt::format("{} ({})", text, detail);
}

std::string table_text(const std::vector<Strategy>& strategies) {
  Table table({"strategy", "wall time", "(min - max)", "seconds added", "registered peak / mean",
               "oracle peak / mean", "misses", "spent"});
  const bool by_logs = all_reported(strategies);  // one clock for all rows
  for (const Strategy& s : strategies) {
    const Spread w = by_logs ? run_length(s) : elapsed(s);
    std::vector<std::string> row = {s.retention, fmt::format("{:.3f} s", w.median),
                                    fmt::format("({:.3f} - {:.3f})", w.least, w.most)};
    if (reported(s)) {
      const Spread share = spread(s.runs, [&](const Run& run) {
        const double whole = by_logs ? run.report->wall_seconds : run.elapsed;
        return whole > 0 ? run.report->cost.added() / whole : 0;
      });
      row.push_back(fmt::format("{:.4f} ({})", median(s, [](const auto& r) { return r.cost.added(); }),
                                percent_text(share.median)));
      const runlog::RegisteredBytes b = medians_of_bytes(s);
      row.push_back(pair_text(static_cast<double>(b.peak), b.mean));
      row.push_back(b.bounds_known ? pair_text(static_cast<double>(b.oracle_peak), b.oracle_mean)
                                   : kNotKnown);
      row.push_back(misses_text(s));
      row.push_back(s.retention == to_string(RetentionKind::helper)
                        ? bounds_text(medians_of_budget(s), medians_of_share(s))
                        : "-");
    } else {
      row.insert(row.end(), 5, "-");
    }
    table.add(std::move(row));
  }
  return table.text();
}

std::string device_note(const Arguments& arguments) {
  return arguments.no_nic ? " (no NIC registers here, and no --device was given)" : "";
}

// What the figures are.
std::string label_text(const Arguments& arguments, const std::vector<Strategy>& strategies) {
  std::string text = fmt::format(
      "Medians of {} interleaved runs; wall time, and seconds added as a share of it, in all rows {}; "
      "registered bytes of a node, sum over its ranks.\n",
      arguments.repeat,
      all_reported(strategies) ? "from MPI_Init to MPI_Finalize"
                               : "of the whole command, its launcher included (a strategy left no logs)");
  for (const Strategy& s : strategies)
    if (reported(s))
      return text + fmt::format("Device: {}{}\n", s.runs.front().report->device, device_note(arguments));
  return text + "No rank left a log: did the program use MPI?\n";
}

Json spread_json(const Spread& s) { return {{"median", s.median}, {"min", s.least}, {"max", s.most}}; }

Json row_json(const Strategy& s) {
  Json row = {{"retention", s.retention}, {"elapsed_seconds", spread_json(elapsed(s))}};
  if (reported(s)) {
    const auto count = [&](auto member) {
      return static_cast<std::uint64_t>(median(s, [&](const auto& r) { return r.acquires.*member; }));
    };
    using A = runlog::Acquires;
    row["wall_seconds"] = spread_json(run_length(s));
    row["seconds_added"] =
        spread_json(spread(s.runs, [](const Run& run) { return run.report->cost.added(); }));
    row["time_budget"] = to_json(medians_of_budget(s));
    row["helper_share"] = to_json(medians_of_share(s));
    row["registered_bytes"] = to_json(medians_of_bytes(s));
    row["acquires"] = {{"total", count(&A::total)}, {"hits", count(&A::hits)},
                       {"waits", count(&A::waits)}, {"misses", count(&A::misses)},
                       {"late", count(&A::late)},   {"bounced", count(&A::bounced)}};
  }
  Json logs = Json::array();
  for (const Run& run : s.runs) logs.push_back(run.logs);
  row["logs"] = std::move(logs);
  return row;
}

Json comparison_json(const Arguments& arguments, const std::vector<Strategy>& strategies) {
  Json rows = Json::array();
  std::string device;
  for (const Strategy& s : strategies) {
    rows.push_back(row_json(s));
    if (device.empty() && reported(s)) device = s.runs.front().report->device;
  }
  return {{"schema", "pinion-compare-1"},
          {"command", fmt::format("{}", fmt::join(arguments.command, " "))},
          {"device", device},
          {"repeat", arguments.repeat},
          {"rows", std::move(rows)}};
}

void emulate(Arguments& arguments) {
  arguments.flags.set("device", "emulated");
  arguments.no_nic = true;
}

/// Below libraries, where they register with a NIC; what is only measured cannot be compared.
void choose_device(Arguments& arguments) {
  const Options options = arguments.flags.options();
  if (acts_at_start(options) == Acts::measured && !may_act_below(options)) emulate(arguments);
}

void compare(Arguments& arguments) {
  if (inside_launcher())
    throw UsageError("compare starts the launcher itself: pinion compare -- mpirun -n 2 ./app");
  std::vector<Strategy> strategies;
  for (const std::string& retention : arguments.retentions) {
    Options options = arguments.flags.options();
    if (retention != kOff)
      if (const Error error = set_option(options, "retention", retention)) throw UsageError(error.message);
    for (const Strategy& earlier : strategies)
      if (earlier.retention == retention)
        throw UsageError(
            fmt::format("--retention: {} is given twice; --repeat says how often each runs", retention));
    strategies.push_back({retention, {}});
  }
  choose_device(arguments);
  arguments.flags.note_unused();
  const std::size_t total = strategies.size() * arguments.repeat;
  std::size_t number = 0;
  for (unsigned round = 1; round <= arguments.repeat; ++round) {
    for (Strategy& strategy : strategies) {
      fmt::print(stderr, "pinion compare: run {} of {}: {} ...", ++number, total, strategy.retention);
      std::fflush(stderr);
      const std::string directory = fmt::format("{}/{}.{}", arguments.log, strategy.retention, round);
      try {
        Run run = run_once(arguments, strategy.retention, directory);
        if (run.report && run.report->acts == Acts::measured) {  // the port is active, and not used
          emulate(arguments);
          run = run_once(arguments, strategy.retention, directory);
        }
        strategy.runs.push_back(std::move(run));
      } catch (...) {
        fmt::print(stderr, "\n");
        throw;
      }
      fmt::print(stderr, " {:.2f} s\n", strategy.runs.back().elapsed);
    }
  }
  if (arguments.json) {
    fmt::print("{}", dump(comparison_json(arguments, strategies)));
  } else {
    fmt::print("{}{}Logs: {}\n", table_text(strategies), label_text(arguments, strategies), arguments.log);
  }
}

}  // namespace

void add_compare(CLI::App& app, const CommandLine& command) {
  CLI::App* sub = app.add_subcommand(
      "compare", "Run a program under several strategies: pinion compare [options] -- CMD...");
  auto arguments = std::make_shared<Arguments>();
  sub->add_option("--retention", arguments->retentions,
                  "strategies to compare, with commas; `off`: without Pinion [on-demand,leave-pinned,helper]")
      ->delimiter(',')
      ->type_name("LIST");
  sub->add_option("--repeat", arguments->repeat, "runs of each [3]")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  sub->add_option("--log", arguments->log,
                  "where the logs and outputs of all runs stay [pinion-compare.logs]")
      ->type_name("DIR");
  sub->add_flag("--json", arguments->json, "one JSON object instead of a table")->disable_flag_override();
  arguments->flags.add_to(*sub, {"off", "retention", "log"});
  sub->add_option("command", arguments->command, "the program and its arguments, best behind `--`")
      ->type_name("CMD");
  sub->callback([arguments, &command] {
    arguments->command.insert(arguments->command.end(), command.begin(), command.end());
    if (arguments->command.empty()) throw UsageError("no command given: pinion compare [options] -- CMD...");
    compare(*arguments);
  });
}

}  // namespace pinion::cli
