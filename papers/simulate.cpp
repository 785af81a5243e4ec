// `papers simulate`: what `pinion simulate` does, and more: patterns of communication, noises, machines, the
// papers' policies, and studies, tables of many rows.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <deque>
#include <memory>

#include "cli/error_line.h"
#include "cli/parser.h"
#include "cli/progress.h"
#include "cli/report/report_tables.h"
#include "cli/simulate/rows.h"
#include "cli/text.h"
#include "helper/profile_file.h"
#include "papers/papers.h"
#include "papers/patterns/noise.h"
#include "papers/patterns/pattern.h"
#include "predict/profile.h"

namespace pinion::cli {

namespace {

using simulate::Result;
using simulate::Workload;

/// The options beside those of logs.
struct PaperArguments final : RowExtension {
  PaperArguments();

  bool has(const std::string& option) const override { return option == "noise" || option == "poll"; }
  void set(Options& options, const Choice& choice) const override;
  void set(simulate::Settings& settings, const Choice& choice) const override;

  SimulateArguments of_logs;
  std::vector<std::string> patterns;
  std::string wake_latency, skew, placement = "packed";
  std::string policy = "sleeping", policy_every = "100", time_slice = "4ms";
  std::string period_window = "4", study, profile;
  std::uint64_t iterations = 0, seed = 1;
  double gflops = 1, bandwidth = 1.5;
  bool intranode = false;
};

PaperArguments::PaperArguments() {
  std::vector<Dimension>& all = of_logs.dimensions;
  const auto predictor =
      std::find_if(all.begin(), all.end(), [](const Dimension& of) { return of.option == "predictor"; });
  all.insert(predictor + 1, {"window",
                             "previous communication points in a context signature [2]",
                             {"2"},
                             where_predicted,
                             "window"});
  all.insert(all.begin(),
             {"noise",
              "variation of computation: none, 1%, spikes, warm-up, regime, drift, irregular [none]",
              {"none"},
              always,
              "noise"});
  all.push_back({"poll",
                 "longest sleep of the helper while communication goes on; 0ms: it never sleeps [1ms]",
                 {"1ms"},
                 where_acting,
                 "poll"});
  of_logs.extension = this;
}

/// No run can poll always.
bool polls_always(const Choice& choice) { return parse_duration(choice.at("poll")) == Duration{0}; }

void PaperArguments::set(Options& options, const Choice& choice) const {
  if (!polls_always(choice)) check(set_option(options, "poll", choice.at("poll")));
  check(set_option(options, "period-window", period_window));
  check(set_option(options, "policy", policy));
  check(set_option(options, "policy-every", policy_every));
}

void PaperArguments::set(simulate::Settings& settings, const Choice& choice) const {
  if (polls_always(choice)) settings.poll = 0;
  settings.time_slices.slice = duration_of("--time-slice", time_slice);
  if (!wake_latency.empty()) settings.wake_latency = duration_of("--wake-latency", wake_latency);
  settings.seed = seed;
  check(simulate::find_noise(choice.at("noise"), settings.disturbance));
}

/// 10^9 a second.
double rate_of(const char* option, double rate) {
  if (!(rate >= 1e-3 && rate <= 1e6))  // no number is neither
    throw UsageError(fmt::format("{}: {} is not from 0.001 to 1000000", option, rate));
  return rate * 1e9;
}

simulate::Machine machine_of(const PaperArguments& arguments) {
  simulate::Machine machine;
  machine.flops = rate_of("--gflops", arguments.gflops);
  machine.network_bytes_per_second = rate_of("--bandwidth", arguments.bandwidth);
  return machine;
}

Workload workload_of_pattern(const PaperArguments& arguments, const std::string& text) {
  simulate::Pattern pattern;
  check(simulate::find_pattern(text, pattern));
  if (arguments.of_logs.ranks)
    throw UsageError("--ranks is for logs; a pattern's stand in its name: NAME:CLASS:RANKS");
  if (!arguments.skew.empty()) throw UsageError("--skew is for logs; the ranks of a pattern begin together");
  simulate::Placement placement, apart;
  check(simulate::Placement::make(pattern.ranks, std::max(1, arguments.of_logs.ppn), arguments.placement,
                                  placement));
  check(simulate::Placement::make(pattern.ranks, 1, "packed", apart));
  Workload workload =
      simulate::pattern_workload(pattern, arguments.iterations,
                                 arguments.intranode ? std::move(apart) : placement, machine_of(arguments));
  workload.placement = std::move(placement);
  return workload;
}

std::vector<Workload> workloads_of(const PaperArguments& arguments) {
  std::vector<Workload> workloads;
  for (const std::string& text : arguments.patterns)
    workloads.push_back(workload_of_pattern(arguments, text));
  if (!arguments.of_logs.logs.empty()) {
    if (arguments.iterations)
      throw UsageError("--iterations is for patterns; a log has as many as were recorded");
    simulate::Tiling tiling;
    tiling.placement = arguments.placement;
    if (!arguments.skew.empty()) tiling.skew = duration_of("--skew", arguments.skew);
    if (!arguments.of_logs.ppn && tiling.placement != "packed")
      throw UsageError(
          "--placement of a log's ranks needs --ppn; without it, they run where they were recorded");
    workloads.push_back(log_workload_of(arguments.of_logs, std::move(tiling)));
  }
  if (workloads.empty()) throw UsageError("nothing to simulate: give logs, or --pattern NAME:CLASS:RANKS");
  return workloads;
}

// ---- studies ----

/// One program of each kind, which takes seconds to simulate.
const std::vector<std::string> kStudyPatterns = {
    "bt:B:4",     "sp:B:4",        "lu:B:4",        "cg:B:4",      "ft:B:4",       "mg:C:4",
    "is:C:4",     "reuse:1M:2",    "no-reuse:1M:2", "nested:1M:2", "warm-up:1M:2", "regime-change:1M:2",
    "drift:1M:2", "irregular:1M:2"};

/// The lists of each part of the study. All rows refer to them.
std::deque<SimulateArguments> parts_of(const PaperArguments& arguments) {
  const SimulateArguments& given = arguments.of_logs;
  if (arguments.study.empty()) return {given};
  SimulateArguments helper = given;
  helper.dimension("retention").values = {"helper"};
  if (arguments.study == "prediction") {
    helper.dimension("predictor").values = {"adaptive", "shortest", "periodicity", "schedule", "oracle"};
    helper.dimension("noise").values = {"none", "1%", "spikes", "warm-up", "regime", "drift", "irregular"};
    return {helper};
  }
  // The curve of one predictor, and the other strategies as points beside it.
  SimulateArguments points = helper, others = given;
  helper.dimension("time-budget").values = {"0.01%", "0.03%", "0.1%", "0.3%", "0.5%", "1%", "3%", "5%"};
  points.dimension("predictor").values = {"shortest", "schedule", "oracle"};
  points.dimension("time-budget").values = {"off"};
  others.dimension("retention").values = {"on-demand", "lru", "leave-pinned"};
  return {helper, points, others};
}

/// Predictions, and registered bytes as shares of leave-pinned's.
std::string study_text(const std::vector<SimulateRow>& rows) {
  Table prediction({"strategy", "within 0.5 / 5 %", "at release", "late", "of the time budget"});
  Table memory({"strategy", "seconds added", "peak", "mean", "oracle peak / mean"});
  for (const SimulateRow& row : rows) {
    const Result& r = row.result;
    const runlog::RegisteredBytes& b = r.registered;
    const runlog::Prediction& p = r.prediction;
    const auto share = [](double of, double whole) {
      return whole > 0 ? fmt::format("{:.3f}", of / whole) : "-";
    };
    const auto peak = static_cast<double>(b.leave_pinned_peak);
    const auto pair = [&](double first, double second) {
      return row.predicts() ? fmt::format("{:5.1f} {:5.1f}", 100 * first, 100 * second) : "-";
    };
    prediction.add({strategy_text(row), pair(p.within_0_5, p.within_5),
                    pair(p.at_release_within_0_5, p.at_release_within_5), count_text(p.late),
                    row.acts() ? spent_text(r.budget) : "-"});
    memory.add({strategy_text(row), added_text(r), share(static_cast<double>(b.peak), peak),
                share(b.mean, b.leave_pinned_mean),
                share(static_cast<double>(b.oracle_peak), peak) + " / " +
                    share(b.oracle_mean, b.leave_pinned_mean)});
  }
  return memory.text() + "\n" + prediction.text();
}

// ---- profiles ----

/// Ranks that do the same have one profile: that of the first of them.
std::vector<std::string> profile_paths(const SimulateRow& row, const std::string& path) {
  std::vector<std::string> paths(row.workload->programs.size());
  for (std::size_t rank = 0; rank < row.workload->ranks.size(); ++rank) {
    std::string& of = paths[row.workload->ranks[rank].program];
    if (of.empty()) of = profile_path(path, static_cast<int>(rank));
  }
  return paths;
}

void read_profiles(SimulateRow& row, const std::string& path) {
  row.settings.keep_profiles = true;
  for (const std::string& of : profile_paths(row, path)) {
    std::string& profile = row.settings.profiles.emplace_back();
    if (of.empty()) continue;  // no rank follows this program
    if (const Error unread = read_profile(of, profile)) throw UsageError(unread.message);
    if (profile.empty()) continue;
    const Error unused = Profile().from_bytes(profile);
    if (!unused) continue;
    print_error_line(fmt::format("no profile: {}", unused.message));
    profile.clear();
  }
}

void write_profiles(const SimulateRow& row, const std::string& path) {
  const std::vector<std::string> paths = profile_paths(row, path);
  for (std::size_t program = 0; program < paths.size(); ++program)
    if (const std::string& profile = row.result.profiles[program]; !profile.empty())
      check(write_profile(paths[program], profile));
}

void simulate_all(std::vector<SimulateRow>& rows, const std::string& profile) {
  Progress progress("papers simulate");
  for (SimulateRow& row : rows) {
    progress.step(fmt::format("row {} of {}: {}", &row - rows.data() + 1, rows.size(), strategy_text(row)));
    const bool profiled = !profile.empty() && row.predicts();
    if (profiled) read_profiles(row, profile);
    simulate_row(row);
    if (profiled) write_profiles(row, profile);
  }
  bound_oracles(rows);
}

void run(PaperArguments arguments) {
  arguments.of_logs.extension = &arguments;
  const bool is_study = !arguments.study.empty();
  if (is_study && arguments.patterns.empty() && arguments.of_logs.logs.empty())
    arguments.patterns = kStudyPatterns;
  const std::vector<Workload> workloads = workloads_of(arguments);
  const std::deque<SimulateArguments> parts = parts_of(arguments);
  std::vector<SimulateRow> rows;
  for (const Workload& workload : workloads)
    for (const SimulateArguments& part : parts) add_rows(rows, part, workload);
  simulate_all(rows, arguments.profile);
  const bool json = arguments.of_logs.json;
  const std::string text = json ? ""
                           : is_study
                               ? rows_text(rows, study_text, "Peak and mean are shares of leave-pinned's. ")
                               : rows_text(rows);
  print_rows(rows, is_study ? Verdict() : verdict_of(rows), json, text);
}

// ---- the parser ----

/// CLI11 lets numbers below 0 and above the most wrap.
std::string is_count(const std::string& text) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const bool valid = text.size() < 20 && std::all_of(text.begin(), text.end(), digit);
  return valid ? "" : fmt::format("'{}' is not a whole number below 10^19", text);
}

void add_word(CLI::App* sub, const char* name, std::string& into, const char* text, const char* type) {
  sub->add_option(name, into, text)->type_name(type);
}

void add_machine(CLI::App* sub, PaperArguments& a) {
  add_word(sub, "--placement", a.placement,
           "node of each rank: packed, random:SEED, or nodes:N,N,... with the ranks of each node [packed]",
           "TEXT");
  sub->add_flag("--intranode", a.intranode,
                "ranks of one node also register messages to each other, as in a run with intranode=on")
      ->disable_flag_override();
  add_word(sub, "--skew", a.skew, "delay between the starts of a log's copies [1ms]", "TIME");
  add_word(
      sub, "--policy", a.policy,
      "sharing of idle cores by helpers, given --cores: sleeping, none-if-busy, aggressive, conservative "
      "[sleeping]",
      "NAME");
  add_word(sub, "--policy-every", a.policy_every,
           "acquires after which policies look at the node's ranks again [100]", "N");
  add_word(sub, "--time-slice", a.time_slice, "time slice of helpers that share a core [4ms]", "TIME");
  add_word(sub, "--wake-latency", a.wake_latency, "delay until a sleeping helper runs [recorded; 60us]",
           "TIME");
  sub->add_option("--gflops", a.gflops, "speed of a core, in patterns [1]")->type_name("X");
  sub->add_option("--bandwidth", a.bandwidth, "bandwidth of the network in GB/s, in patterns [1.5]")
      ->type_name("X");
}

void add_details(CLI::App* sub, PaperArguments& a) {
  sub->add_option("--iterations", a.iterations, "turns of a pattern's main loop [its own]")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  sub->add_option("--seed", a.seed, "seed of the noise [1]")->check(is_count)->type_name("N");
  add_word(sub, "--period-window", a.period_window,
           "points in a row that must repeat for a period, of predictor periodicity [4]", "N");
  add_word(sub, "--profile", a.profile,
           "begin with an earlier run's profile, as in `pinion run --profile`; each row is a run", "FILE");
  sub->add_option(
         "--study", a.study,
         "prediction: each predictor under each noise; budget: registered bytes against the time "
         "budget, the other strategies beside it; of --pattern or logs, else of a choice of patterns")
      ->check(CLI::IsMember({"prediction", "budget"}))
      ->type_name("TEXT");
}

}  // namespace

void add_paper_simulate(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("simulate", "Replay runs, or patterns of communication, under other strategies");
  auto a = std::make_shared<PaperArguments>();
  std::string patterns = "NAME:CLASS:RANKS, or NAME:SIZE:RANKS; names:";
  for (const simulate::PatternName& name : simulate::pattern_names())
    patterns += std::string(" ") + name.name;
  add_list(*sub, "--pattern", a->patterns, patterns);
  add_rows_options(*sub, a->of_logs);
  add_machine(sub, *a);
  add_details(sub, *a);
  sub->callback([a] { run(*a); });
}

}  // namespace pinion::cli
