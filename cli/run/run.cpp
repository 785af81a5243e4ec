// `pinion run`: one program, or one rank of it, with the preload set.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/process.h"
#include "cli/command.h"
#include "cli/doctor/caches_above.h"
#include "cli/error_line.h"
#include "cli/option_flags.h"
#include "cli/output_file.h"
#include "cli/parser.h"
#include "cli/python_part.h"
#include "cli/report/arena.h"
#include "cli/report/hugepages.h"
#include "cli/report/judgement.h"
#include "cli/report/report_text.h"
#include "cli/report/source_places.h"
#include "cli/run/beforehand.h"
#include "cli/run/container.h"
#include "cli/run/forward.h"
#include "cli/run/launch.h"
#include "cli/run/log_directory.h"
#include "cli/run/notes.h"
#include "cli/run/preload_reach.h"
#include "cli/system_files.h"
#include "cli/text.h"
#include "cli/typed.h"
#include "device/node_devices.h"
#include "lease/acts.h"
#include "runlog/analysis.h"

namespace pinion::cli {

namespace fs = std::filesystem;

namespace {

// A summary of all ranks' logs, in a few lines on stderr: standard output is the program's.
void print_summary(const std::string& directory, const Options& options, const CommandLine& command,
                   const std::vector<Unreached>& unreached, int status, const ArenaFigures& arena) {
  runlog::Report report;
  if (const Error error = runlog::analyse({directory}, report)) {
    print_error_line(error.code == ENOENT ? no_log_text(options, unreached, status) : error.message);
    return;
  }
  SourcePlaces places;
  const SiteText site_text = [&](const runlog::CallSite& site) { return places.text(site); };
  const Judgement judgement = judge(report, {directory}, arena, {"", quoted(command)}, site_text);
  fmt::print(stderr, "{}", summary_text(report, judgement.strategies(), judgement.verdict));
}

/// The programs in which a cache stays on, with its limits there.
std::string where_off(const CacheAbove& cache, const Options& options) {
  if (!cache.off_in_mpi_only) return {};
  std::vector<std::string> limits;
  for (const auto& [name, limit] : limits_of_kept_caches(cache, options))
    limits.push_back(fmt::format("{}={}", name, limit));
  if (const std::string bound = bound_of_freed(cache); !bound.empty()) limits.push_back(bound);
  return fmt::format(" (for MPI alone: without it UCX may die when a peer does; elsewhere it stays on{}{})",
                     limits.empty() ? "" : ", with ", fmt::join(limits, " "));
}

/// Libraries behave otherwise than the user may expect.
void tell_caches_off(const Options& options) {
  if (!may_act_below(options)) return;
  if (const std::string gpu = gpu_file(); !gpu.empty()) {
    tell(fmt::format(
        "registration caches above the verbs front stay on: this node has a GPU ({}), whose memory would be "
        "registered for each message without them; a program without GPU memory may switch them off itself "
        "(UCX_RCACHE_ENABLE=n)",
        gpu));
    return;
  }
  std::string text;
  for (const CacheAbove& cache : caches_above()) {
    if (!cache.is_met) {
      const auto is_users = [](const auto& setting) { return std::getenv(setting.first.c_str()) != nullptr; };
      if (std::any_of(cache.off.begin(), cache.off.end(), is_users)) continue;
      tell(fmt::format(
          "{} keeps its registration cache: its registrations are not seen to lead into the front; {}={} "
          "switches it off",
          cache.library, cache.off.front().first, cache.off.front().second));
      continue;
    }
    text += text.empty() ? "" : "; ";
    text += cache.library;
    for (const auto& [name, value] : settings_of(cache)) {
      const char* const users = std::getenv(name.c_str());
      text += users ? fmt::format(" {}={} (yours)", name, users) : fmt::format(" {}={}", name, value);
    }
    text += where_off(cache, options);
  }
  if (text.empty()) return;
  tell("registration caches above the verbs front are switched off: " + text);
}

/// The user sees a port, and no registration below the libraries.
void tell_closed(const Options& options) {
  const bool by_default = options.front == Front::automatic && options.device == kAutoDevice;
  if (!by_default || !has_active_port()) return;
  if (const std::string why = closed_to_programs(); !why.empty())
    tell("measured only, although an RDMA port is active: " + why);
}

void tell_beforehand(const Options& options, const std::vector<Unreached>& unreached,
                     const std::string& raised) {
  if (!raised.empty()) tell(raised);
  tell_closed(options);
  for (const Unreached& program : unreached) tell(program.line);
  tell_caches_off(options);
}

/// A rank has no process of `pinion run` beside it.
void check_metrics(const std::string& path) {
  if (!path.empty() && inside_launcher())
    throw UsageError(
        "--prometheus: for `pinion run` around a launcher; here, repeat `pinion report LOGS --prometheus "
        "FILE`");
}

/// Starts the part that writes metrics again and again while the program runs, and once more at its end.
void start_metrics(std::optional<PythonChild>& metrics, const std::string& path, const std::string& logs) {
  if (path.empty()) return;
  const CommandLine part = python_part("--prometheus", "metrics", {pinion_command(), logs, path});
  write_text(path, "");  // no process yet; throws where the path is no good
  metrics.emplace(part);
}

int run(OptionFlags flags, const std::vector<std::string>& inherited, const std::string& metrics_path,
        CommandLine command) {
  inherit(inherited);
  check_metrics(metrics_path);
  const Options options = flags.options();
  if (options.off) return inside_launcher() ? execute(command, {}) : run_and_wait(command, {});
  const std::vector<Unreached> unreached = unreached_programs(command);
  const auto foreign = std::find_if(unreached.begin(), unreached.end(),
                                    [](const Unreached& program) { return program.is_foreign; });
  if (foreign != unreached.end()) {
    if (job_place().rank <= 0) tell(foreign->line);
    return inside_launcher() ? execute(command, without_preload()) : run_and_wait(command, without_preload());
  }
  check_beforehand(options, command);
  look_for_caches_of(command);
  const std::string raised = raise_memlock(options);
  if (inside_launcher()) {
    // Other ranks share the directory: its files stay. Around a launcher, `pinion run` has made it already; a
    // node that fails to make it loses its log.
    const bool around = !inherited.empty() || std::getenv("PINION_TEMPORARY_LOG");
    if (!options.log.empty())
      flags.set("log", around ? fs::absolute(options.log).string() : make_log_directory(options.log));
    if (inherited.empty() && job_place().rank == 0) {
      flags.note_unused();
      tell_beforehand(options, unreached, raised);
    }
    Environment environment = with_pinion(flags.options());
    if (inherited.empty()) environment["PINION_SUMMARY"] = "1";  // rank 0 prints for the job at its end
    return execute(command, environment);
  }
  std::optional<TemporaryLogDirectory> temporary;
  const std::string directory =
      options.log.empty() ? temporary.emplace().path() : prepare_log_directory(options.log, Earlier::kept);
  flags.set("log", directory);
  std::optional<PythonChild> metrics;
  start_metrics(metrics, metrics_path, directory);
  flags.note_unused();
  tell_beforehand(options, unreached, raised);
  Environment environment = with_pinion(flags.options());
  reach_into_container(environment, command,
                       temporary ? fs::path(directory).parent_path().string() : directory);
  if (temporary) environment["PINION_TEMPORARY_LOG"] = "1";
  environment[kRunVariable] = new_run_name();
  // Ranks elsewhere may have a NIC.
  if (may_act_below_somewhere(options) && hands_environment_on(command))
    environment[kCachesOffVariable] = caches_to_switch_off(options);
  const CommandLine typed = command;
  forward_to_ranks(environment, command);
  const int status = run_and_wait(command, environment);
  if (metrics) metrics->finish();
  const ArenaFigures arena = arena_of({directory});
  print_summary(directory, options, typed, unreached, status, arena);
  if (const std::string text = hugepages_text(hugepages_of({directory})); !text.empty()) tell(text);
  if (const std::string text = arena_text(arena); !text.empty()) tell(text);
  return status;
}

}  // namespace

void add_run(CLI::App& app, const CommandLine& command, int& status) {
  CLI::App* sub = app.add_subcommand("run", "Run a program under Pinion: pinion run [options] CMD...");
  auto flags = std::make_shared<OptionFlags>();
  auto inherited = std::make_shared<std::vector<std::string>>();
  auto metrics = std::make_shared<std::string>();
  flags->add_to(*sub);
  sub->add_option("--inherit", *inherited)->group("")->allow_extra_args(false);  // forward.h
  sub->add_option(
         "--prometheus", *metrics,
         "write metrics while the program runs, for the textfile collector of Prometheus' node exporter")
      ->type_name("FILE");
  add_program(*sub);
  sub->callback([flags, inherited, metrics, &command, &status] {
    if (command.empty()) throw UsageError("no command given: pinion run [options] CMD...");
    status = run(*flags, *inherited, *metrics, command);
  });
}

}  // namespace pinion::cli
