// `pinion compare`: one program under several strategies, runs interleaved so that drift of the machine meets
// all of them alike; one table of medians.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/option_flags.h"
#include "cli/report/libraries_part.h"
#include "cli/report/report_json.h"
#include "cli/report/report_tables.h"
#include "cli/report/unregistered_uses.h"
#include "cli/report/verdict.h"
#include "cli/run/compare_rows.h"
#include "cli/run/forward.h"
#include "cli/run/launch.h"
#include "cli/run/log_directory.h"
#include "cli/run/nic_memory.h"
#include "cli/text.h"
#include "engine/acts.h"
#include "base/process.h"
#include "runlog/analysis.h"

namespace pinion::cli {

namespace {

struct Arguments {
  OptionFlags flags;
  std::vector<std::string> rows;  // as named; empty: the default ones
  unsigned repeat = 3;
  std::string log = "pinion-compare.logs";
  bool json = false;
  bool no_nic = false;  ///< nothing registers with a NIC here: the device is an emulated one
  CommandLine command;
};

struct Run {
  std::string logs;
  double elapsed = 0;                     ///< of the command, launch included
  std::optional<runlog::Report> report;   ///< absent where no rank left a log
  std::optional<NicMemory::Figures> nic;  ///< below libraries, where the kernel has a list
  UnregisteredUses unregistered;
};

struct Strategy {
  Row row;
  OptionFlags flags;      ///< where Pinion runs
  Environment variables;  ///< of a library's cache
  std::vector<Run> runs;
  std::optional<UnregisteredUses> counted;  ///< of a library's cache, in a run of its own
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

/// Where Pinion stands, and the needs of a run beside its command.
Environment with_logs(OptionFlags flags, const std::string& logs) {
  flags.set("log", logs);
  Environment environment = with_pinion(flags.options());
  environment[kRunVariable] = new_run_name();
  return environment;
}

Run run_once(const Arguments& arguments, const std::string& name, Environment environment, Run run,
             bool forwards = true) {
  const std::string output = run.logs + "/output.txt";
  CommandLine command = arguments.command;
  if (forwards) forward_to_ranks(environment, command);
  std::optional<NicMemory> nic;
  if (may_act_below(arguments.flags.options())) nic.emplace();
  const Time start = monotonic_now();
  const int status = run_and_wait(command, environment, output);
  run.elapsed = static_cast<double>(monotonic_now() - start) * 1e-9;
  if (nic) run.nic = nic->figures();
  if (status != 0)
    throw Failure(fmt::format("{} failed under {} with exit status {}; its output is in {}",
                              arguments.command.front(), name, status, output));
  return run;
}

Run run_once(const Arguments& arguments, const Strategy& strategy, const std::string& directory) {
  const std::string& name = strategy.row.name;
  Run run;
  run.logs = prepare_log_directory(directory);
  if (!strategy.row.has_pinion()) {
    Environment environment = strategy.variables;
    environment["PINION"] = kOff;
    return run_once(arguments, name, environment, run, name != kOff);
  }
  run = run_once(arguments, name, with_logs(strategy.flags, run.logs), run);
  runlog::Report report;
  const Error error = runlog::analyse({run.logs}, report);
  if (error && error.code != ENOENT) throw Failure(error.message);
  if (!error) run.report = std::move(report);
  run.unregistered = unregistered_uses(run.logs);
  return run;
}

/// A run whose registrations pass, and are recorded; with the libraries' caches off, or as they are.
std::string observe(const Arguments& arguments, const Environment* caches, const std::string& name) {
  fmt::print(stderr, "pinion compare: {} ...\n", name);
  OptionFlags flags = arguments.flags;
  for (const char* limit : {"limit", "node-limit", "limit-regions"}) flags.set(limit, "0");
  flags.set("retention", to_string(RetentionKind::observe));
  Run run;
  run.logs = prepare_log_directory(fmt::format("{}/{}", arguments.log, name));
  Environment environment = with_logs(flags, run.logs);
  if (caches) {
    environment[kCachesOffVariable] = "";
    environment.insert(caches->begin(), caches->end());
  }
  // Open MPI's agent would switch the caches off again (forward.h): of its ranks, those on this node count.
  return run_once(arguments, name, environment, run, caches == nullptr).logs;
}

std::string misses_text(const Strategy& s) {
  const auto count = [&](auto member) {
    return count_text(
        static_cast<std::uint64_t>(median(s, [&](const auto& r) { return r.acquires.*member; })));
  };
  using A = runlog::Acquires;
  return fmt::format("{} / {} / {}", count(&A::misses), count(&A::late), count(&A::bounced));
}

// The figures below libraries: those of the NIC, and of both kinds of caches alike.
struct BelowLibraries {
  std::optional<NicMemory::Figures> nic;
  UnregisteredUses unregistered;
};

BelowLibraries medians_below(const Strategy& s) {
  BelowLibraries b;
  const auto all = [&](auto has) { return std::all_of(s.runs.begin(), s.runs.end(), has); };
  if (all([](const Run& run) { return run.nic.has_value(); })) {
    using F = NicMemory::Figures;
    const auto of = [&](auto member) {
      return spread(s.runs, [&](const Run& run) { return static_cast<double>((*run.nic).*member); }).median;
    };
    const auto count = [&](auto member) { return static_cast<std::uint64_t>(of(member)); };
    b.nic = F{count(&F::peak_bytes), count(&F::peak_regions), of(&F::mean_bytes), of(&F::mean_regions)};
  }
  if (s.counted) b.unregistered = *s.counted;
  if (s.counted || !s.row.has_pinion()) return b;
  const auto of = [&](auto member) {
    const auto value = [&](const Run& run) { return static_cast<double>(run.unregistered.*member); };
    return static_cast<std::uint64_t>(spread(s.runs, value).median);
  };
  b.unregistered = {of(&UnregisteredUses::all), of(&UnregisteredUses::reuses),
                    all([](const Run& run) { return run.unregistered.known; })};
  return b;
}

std::string wall_text(const Strategy& s, bool by_logs) {
  const Spread w = by_logs ? run_length(s) : elapsed(s);
  return fmt::format("{:.3f} ({:.3f} - {:.3f})", w.median, w.least, w.most);
}

std::string memory_table(const std::vector<Strategy>& strategies, bool by_logs) {
  Table table({"strategy", "wall time, s (min - max)", "registered peak / mean", "oracle peak / mean"});
  for (const Strategy& s : strategies) {
    std::string held = "-", oracle = "-";
    if (reported(s)) {
      const runlog::RegisteredBytes b = medians_of_bytes(s);
      held = pair_text(static_cast<double>(b.peak), b.mean);
      oracle = b.bounds_known ? pair_text(static_cast<double>(b.oracle_peak), b.oracle_mean) : kNotKnown;
    }
    table.add({s.row.name, wall_text(s, by_logs), held, oracle});
  }
  return table.text();
}

std::string time_table(const std::vector<Strategy>& strategies, bool by_logs) {
  Table table(
      {"strategy", "seconds added", "misses / late / bounced", "spent on threads", "spent by helper"});
  for (const Strategy& s : strategies) {
    if (!reported(s)) continue;
    const Spread share = spread(s.runs, [&](const Run& run) {
      const double whole = by_logs ? run.report->wall_seconds : run.elapsed;
      return whole > 0 ? run.report->cost.added() / whole : 0;
    });
    const bool acts = s.row.retention == to_string(RetentionKind::helper);
    table.add({s.row.name,
               fmt::format("{} ({})", seconds_text(median(s, [](const auto& r) { return r.cost.added(); })),
                           percent_text(share.median)),
               misses_text(s), acts ? spent_text(medians_of_budget(s)) : "-",
               acts ? spent_text(medians_of_share(s)) : "-"});
  }
  return table.text();
}

std::string nic_table(const std::vector<Strategy>& strategies) {
  Table table({"strategy", "NIC's bytes peak / mean", "NIC's regions", "critical path (reuses)"});
  for (const Strategy& s : strategies) {
    const BelowLibraries b = medians_below(s);
    table.add({s.row.name,
               b.nic ? pair_text(static_cast<double>(b.nic->peak_bytes), b.nic->mean_bytes) : kNotKnown,
               b.nic ? fmt::format("{} / {:.1f}", b.nic->peak_regions, b.nic->mean_regions) : kNotKnown,
               b.unregistered.known
                   ? fmt::format("{} ({})", count_text(b.unregistered.all), count_text(b.unregistered.reuses))
                   : kNotKnown});
  }
  return table.text();
}

std::string tables_text(const std::vector<Strategy>& strategies, bool below) {
  const bool by_logs = all_reported(strategies);  // one clock for all rows
  std::string out = memory_table(strategies, by_logs);
  if (std::any_of(strategies.begin(), strategies.end(), reported))
    out += "\n" + time_table(strategies, by_logs);
  return below ? out + "\n" + nic_table(strategies) : out;
}

Verdict verdict_of(const Arguments& arguments, const std::vector<Strategy>& strategies) {
  const bool by_logs = all_reported(strategies);
  std::vector<ComparedRow> rows;
  for (const Strategy& s : strategies) {
    const Spread w = by_logs ? run_length(s) : elapsed(s);
    rows.push_back({s.row.name, reported(s) ? medians_of_bytes(s) : runlog::RegisteredBytes{}, w.median,
                    w.least, w.most,
                    reported(s) ? median(s, [](const auto& r) { return r.cost.added(); }) : 0,
                    typed(s.row, s.flags, s.variables, arguments.command), s.runs.front().logs});
  }
  return cli::verdict_of(rows);
}

std::string device_note(const Arguments& arguments) {
  return arguments.no_nic ? " (no NIC registers here, and no --device was given)" : "";
}

// What the figures are.
std::string label_text(const Arguments& arguments, const std::vector<Strategy>& strategies, bool below) {
  std::string text = fmt::format(
      "Medians of {} of each, interleaved; wall time, and seconds added as a share of it, in all rows {}. ",
      plural_text(arguments.repeat, "run", "runs"),
      all_reported(strategies) ? "from MPI_Init to MPI_Finalize"
                               : "of the whole command, its launcher included (a strategy left no logs)");
  text +=
      "Registered bytes of a node, sum over its ranks; oracle is the least possible. Seconds added: the time "
      "that "
      "registration costs beyond leave-pinned's. Late: misses of memory used before. ";
  text +=
      below ? "NIC: regions of this node's devices by the kernel's list, every 20 ms over the whole command, "
              "also "
              "those that libraries keep for themselves. Critical path: uses that found no registration; in "
              "parentheses without the first two of each range."
            : "Rows library and library-limited are for where Pinion acts below libraries: here Pinion acts "
              "beside the caches of libraries.";
  std::string out = wrapped(text, "");
  for (const Strategy& s : strategies)
    if (reported(s))
      return out +
             wrapped(fmt::format("Device: {}{}", s.runs.front().report->device, device_note(arguments)), "");
  return out + "No rank left a log: did the program use MPI?\n";
}

// The command to type for each row.
std::string typed_text(const Arguments& arguments, const std::vector<Strategy>& strategies) {
  std::string text;
  for (const Strategy& s : strategies)
    text += fmt::format("{}:  {}\n", s.row.name, typed(s.row, s.flags, s.variables, arguments.command));
  return text;
}

Json spread_json(const Spread& s) { return {{"median", s.median}, {"min", s.least}, {"max", s.most}}; }

Json below_json(const Strategy& s) {
  const BelowLibraries b = medians_below(s);
  Json nic, unregistered;  // null: not known
  if (b.nic)
    nic = {{"peak_bytes", b.nic->peak_bytes},
           {"mean_bytes", static_cast<std::uint64_t>(b.nic->mean_bytes)},
           {"peak_regions", b.nic->peak_regions},
           {"mean_regions", b.nic->mean_regions}};
  if (b.unregistered.known) unregistered = {{"uses", b.unregistered.all}, {"reuses", b.unregistered.reuses}};
  return {{"nic", std::move(nic)}, {"unregistered", std::move(unregistered)}};
}

Json row_json(const Arguments& arguments, const Strategy& s, bool below) {
  Json row = {{"retention", s.row.name},
              {"command", typed(s.row, s.flags, s.variables, arguments.command)},
              {"elapsed_seconds", spread_json(elapsed(s))}};
  if (below) row.update(below_json(s));
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

Json comparison_json(const Arguments& arguments, const std::vector<Strategy>& strategies, bool below) {
  Json rows = Json::array();
  std::string device;
  for (const Strategy& s : strategies) {
    rows.push_back(row_json(arguments, s, below));
    if (device.empty() && reported(s)) device = s.runs.front().report->device;
  }
  return {{"schema", "pinion-compare-1"},
          {"command", fmt::format("{}", fmt::join(arguments.command, " "))},
          {"device", device},
          {"repeat", arguments.repeat},
          {"rows", std::move(rows)},
          {"verdict", to_json(verdict_of(arguments, strategies))}};
}

void emulate(Arguments& arguments) {
  arguments.flags.set("device", "emulated");
  arguments.no_nic = true;
}

/// Below libraries, where they register with a NIC; a run that only measures has no strategy to compare.
void choose_device(Arguments& arguments) {
  const Options options = arguments.flags.options();
  if (acts_at_start(options) == Acts::measured && !may_act_below(options)) emulate(arguments);
}

std::vector<Strategy> strategies_of(const Arguments& arguments) {
  const Options options = arguments.flags.options();
  const std::vector<Row> rows = rows_of(arguments.rows, options);
  std::vector<Strategy> strategies;
  for (const Row& row : rows) {
    strategies.emplace_back().row = row;
    if (row.has_pinion()) strategies.back().flags = flags_of(row, rows, arguments.flags);
  }
  return strategies;
}

/// The limits of the libraries' caches, less the memory that a run shows beside these.
void limit_libraries(const Arguments& arguments, std::vector<Strategy>& strategies) {
  const auto is_limited = [](const Strategy& s) { return s.row.is_library() && s.row.limited; };
  const auto found = std::find_if(strategies.begin(), strategies.end(), is_limited);
  if (found == strategies.end()) return;
  const LibrariesPart part = libraries_part({observe(arguments, nullptr, "libraries-part")});
  found->variables = library_variables(found->row, arguments.flags.options(), part);
}

/// False: a port is active, but the program does not use it, so that it was only measured.
bool run_all(const Arguments& arguments, std::vector<Strategy>& strategies) {
  const std::size_t total = strategies.size() * arguments.repeat;
  std::size_t number = 0;
  for (unsigned round = 1; round <= arguments.repeat; ++round) {
    for (Strategy& strategy : strategies) {
      fmt::print(stderr, "pinion compare: run {} of {}: {} ...", ++number, total, strategy.row.name);
      std::fflush(stderr);
      const std::string directory = fmt::format("{}/{}.{}", arguments.log, strategy.row.name, round);
      try {
        strategy.runs.push_back(run_once(arguments, strategy, directory));
      } catch (...) {
        fmt::print(stderr, "\n");
        throw;
      }
      const Run& run = strategy.runs.back();
      fmt::print(stderr, " {:.2f} s\n", run.elapsed);
      if (run.report && run.report->acts == Acts::measured && !arguments.no_nic) return false;
    }
  }
  return true;
}

/// All rows have run on return.
std::vector<Strategy> run_strategies(Arguments& arguments) {
  for (;;) {
    std::vector<Strategy> strategies = strategies_of(arguments);
    limit_libraries(arguments, strategies);
    if (run_all(arguments, strategies)) return strategies;
    emulate(arguments);
  }
}

void compare(Arguments& arguments) {
  if (inside_launcher())
    throw UsageError("compare starts the launcher itself: pinion compare -- mpirun -n 2 ./app");
  rows_of(arguments.rows, arguments.flags.options());  // wrong ones before all else
  choose_device(arguments);
  arguments.flags.note_unused();
  std::vector<Strategy> strategies = run_strategies(arguments);
  for (Strategy& s : strategies)
    if (s.row.is_library())
      s.counted = unregistered_uses(observe(arguments, &s.variables, s.row.name + ".counted"));
  const bool below = may_act_below(arguments.flags.options());
  if (arguments.json) {
    fmt::print("{}", dump(comparison_json(arguments, strategies, below)));
  } else {
    fmt::print("{}\n{}{}Logs: {}\n", tables_text(strategies, below), label_text(arguments, strategies, below),
               below ? typed_text(arguments, strategies) : "", arguments.log);
    if (const std::string verdict = to_text(verdict_of(arguments, strategies), ""); !verdict.empty())
      fmt::print("\n{}", verdict);
  }
}

}  // namespace

void add_compare(CLI::App& app, const CommandLine& command) {
  CLI::App* sub =
      app.add_subcommand("compare", "Run a program under several strategies: compare [options] -- CMD...");
  auto arguments = std::make_shared<Arguments>();
  sub->add_option("--retention", arguments->rows,
                  "strategies to compare, with commas; `off`: without Pinion; under --front verbs also "
                  "`library`, its own cache; `NAME-limited`: under the limits, which then are for these rows "
                  "alone [on-demand,leave-pinned,helper]")
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
