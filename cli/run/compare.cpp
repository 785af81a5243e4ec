// `pinion compare`: one program under several strategies, runs interleaved so that drift of the machine meets
// all of them alike; one table of medians.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/doctor/caches_above.h"
#include "cli/parser.h"
#include "cli/run/beforehand.h"
#include "cli/run/comparison.h"
#include "cli/run/forward.h"
#include "cli/run/launch.h"
#include "cli/run/log_directory.h"
#include "cli/run/notes.h"
#include "lease/acts.h"
#include "runlog/analysis.h"

namespace pinion::cli {

namespace {

/// Returns the variables that put Pinion before a run's command and its log into `logs`.
Environment with_logs(OptionFlags flags, const std::string& logs) {
  flags.set("log", logs);
  Environment environment = with_pinion(flags.options());
  environment[kRunVariable] = new_run_name();
  return environment;
}

ComparedRun run_once(const CompareArguments& arguments, const std::string& name, Environment environment,
                     ComparedRun run, bool forwards = true) {
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

ComparedRun run_once(const CompareArguments& arguments, const ComparedStrategy& strategy,
                     const std::string& directory) {
  const std::string& name = strategy.row.name;
  ComparedRun run;
  run.logs = prepare_log_directory(directory, Earlier::removed);
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
std::string observe(const CompareArguments& arguments, const Environment* caches, const std::string& name) {
  fmt::print(stderr, "pinion compare: {} ...\n", name);
  OptionFlags flags = arguments.flags;
  for (const char* limit : {"limit", "node-limit", "limit-regions"}) flags.set(limit, "0");
  flags.set("retention", to_string(RetentionKind::observe));
  ComparedRun run;
  run.logs = prepare_log_directory(fmt::format("{}/{}", arguments.log, name), Earlier::removed);
  Environment environment = with_logs(flags, run.logs);
  if (caches) {
    environment[kCachesOffVariable] = "";
    environment.insert(caches->begin(), caches->end());
  }
  // Open MPI's agent would switch the caches off again (forward.h): of its ranks, those on this node count.
  return run_once(arguments, name, environment, run, caches == nullptr).logs;
}

void emulate(CompareArguments& arguments) {
  arguments.flags.set("device", "emulated");
  arguments.no_nic = true;
}

/// Below libraries, where they register with a NIC; a run that only measures has no strategy to compare.
void choose_device(CompareArguments& arguments) {
  const Options options = arguments.flags.options();
  if (acts_at_start(options) == Acts::measured && !may_act_below(options)) emulate(arguments);
}

std::vector<ComparedStrategy> strategies_to_compare(const CompareArguments& arguments) {
  const Options options = arguments.flags.options();
  const std::vector<Row> rows = rows_of(arguments.rows, options);
  std::vector<ComparedStrategy> strategies;
  for (const Row& row : rows) {
    strategies.emplace_back().row = row;
    if (row.has_pinion()) strategies.back().flags = flags_of(row, rows, arguments.flags);
  }
  return strategies;
}

/// The limits of the libraries' caches, less the memory that a run shows beside these.
void limit_libraries(const CompareArguments& arguments, std::vector<ComparedStrategy>& strategies) {
  const auto is_limited = [](const ComparedStrategy& s) { return s.row.is_library() && s.row.limited; };
  const auto found = std::find_if(strategies.begin(), strategies.end(), is_limited);
  if (found == strategies.end()) return;
  const LibrariesPart part = libraries_part({observe(arguments, nullptr, "libraries-part")});
  found->variables = library_variables(found->row, arguments.flags.options(), part);
}

/// True where a row has Pinion, and none of these rows left a log.
bool leave_no_logs(const std::vector<ComparedStrategy>& strategies) {
  bool has_pinion = false;
  for (const ComparedStrategy& s : strategies) {
    if (s.row.has_pinion()) has_pinion = true;
    if (std::any_of(s.runs.begin(), s.runs.end(), [](const ComparedRun& run) { return run.report; }))
      return false;
  }
  return has_pinion;
}

/// Removes the directory again if it was made for nothing.
void refuse_without_logs(const CompareArguments& arguments) {
  std::error_code ignored;
  if (arguments.made_log) std::filesystem::remove_all(arguments.log, ignored);
  throw UsageError(no_log_text(arguments.flags.options(), unreached_programs(arguments.command), 0));
}

/// False: a port is active, but the program does not use it, so that it was only measured.
bool run_all(const CompareArguments& arguments, std::vector<ComparedStrategy>& strategies) {
  const std::size_t total = strategies.size() * arguments.repeat;
  std::size_t number = 0;
  for (unsigned round = 1; round <= arguments.repeat; ++round) {
    for (ComparedStrategy& strategy : strategies) {
      fmt::print(stderr, "pinion compare: run {} of {}: {} ...", ++number, total, strategy.row.name);
      std::fflush(stderr);
      const std::string directory = fmt::format("{}/{}.{}", arguments.log, strategy.row.name, round);
      try {
        strategy.runs.push_back(run_once(arguments, strategy, directory));
      } catch (...) {
        fmt::print(stderr, "\n");
        throw;
      }
      const ComparedRun& run = strategy.runs.back();
      fmt::print(stderr, " {:.2f} s\n", run.elapsed);
      if (run.report && run.report->acts == Acts::measured && !arguments.no_nic) return false;
    }
    if (round == 1 && leave_no_logs(strategies)) refuse_without_logs(arguments);
  }
  return true;
}

/// All rows have run on return.
std::vector<ComparedStrategy> run_strategies(CompareArguments& arguments) {
  for (;;) {
    std::vector<ComparedStrategy> strategies = strategies_to_compare(arguments);
    limit_libraries(arguments, strategies);
    if (run_all(arguments, strategies)) return strategies;
    emulate(arguments);
  }
}

void compare(CompareArguments& arguments) {
  if (inside_launcher())
    throw UsageError("compare starts the launcher itself: pinion compare -- mpirun -n 2 ./app");
  rows_of(arguments.rows, arguments.flags.options());  // wrong ones before all else
  check_beforehand(arguments.flags.options(), arguments.command);
  look_for_caches_of(arguments.command);
  choose_device(arguments);
  arguments.made_log = !std::filesystem::exists(arguments.log);
  make_log_directory(arguments.log);
  arguments.flags.note_unused();
  for (const ComparedStrategy& strategy : strategies_to_compare(arguments))
    if (strategy.row.has_pinion())
      if (const std::string raised = raise_memlock(strategy.flags.options()); !raised.empty()) tell(raised);
  std::vector<ComparedStrategy> strategies = run_strategies(arguments);
  for (ComparedStrategy& s : strategies)
    if (s.row.is_library())
      s.counted = unregistered_uses(observe(arguments, &s.variables, s.row.name + ".counted"));
  const bool below = may_act_below(arguments.flags.options());
  fmt::print("{}", arguments.json ? dump(comparison_json(arguments, strategies, below))
                                  : comparison_text(arguments, strategies, below));
}

}  // namespace

void add_compare(CLI::App& app, const CommandLine& command) {
  CLI::App* sub =
      app.add_subcommand("compare", "Run a program under several strategies: compare [options] CMD...");
  auto arguments = std::make_shared<CompareArguments>();
  add_list(
      *sub, "--retention", arguments->rows,
      "strategies to compare, with commas; `off`: without Pinion; under --front verbs also `library`, its "
      "own cache; `NAME-limited`: under the limits, which then are for these rows alone "
      "[on-demand,leave-pinned,helper]");
  sub->add_option("--repeat", arguments->repeat, "runs of each [3]")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  sub->add_option("--log", arguments->log,
                  "where the logs and outputs of all runs stay [pinion-compare.logs]")
      ->type_name("DIR");
  sub->add_flag("--json", arguments->json, "one JSON object instead of a table")->disable_flag_override();
  arguments->flags.add_to(*sub, {"off", "retention", "log"});
  add_program(*sub);
  sub->callback([arguments, &command] {
    if (command.empty()) throw UsageError("no command given: pinion compare [options] CMD...");
    arguments->command = command;
    compare(*arguments);
  });
}

}  // namespace pinion::cli
