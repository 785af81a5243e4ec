// `pinion simulate`: the cost of a recorded run, or of a pattern of communication, under other strategies,
// limits, NICs and numbers of ranks, a row for each combination of the values given.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <ctime>
#include <deque>
#include <memory>

#include "cli/error_line.h"
#include "cli/option_flags.h"
#include "cli/parser.h"
#include "cli/progress.h"
#include "cli/report/recommendation.h"
#include "cli/simulate/firehose_study.h"
#include "cli/simulate/rows.h"
#include "cli/simulate/strategies.h"
#include "cli/text.h"
#include "helper/profile_file.h"
#include "predict/profile.h"

namespace pinion::cli {

namespace {

using simulate::Workload;

// ---- studies: tables of many rows, one command each ----

/// One program of each kind, which takes seconds to simulate.
const std::vector<std::string> kStudyPatterns = {
    "bt:B:4",     "sp:B:4",        "lu:B:4",        "cg:B:4",      "ft:B:4",       "mg:C:4",
    "is:C:4",     "reuse:1M:2",    "no-reuse:1M:2", "nested:1M:2", "warm-up:1M:2", "regime-change:1M:2",
    "drift:1M:2", "irregular:1M:2"};

/// The lists of --study, beside the given ones.
SimulateArguments with_study(SimulateArguments arguments) {
  const bool given = !arguments.patterns.empty() || !arguments.logs.empty();
  if (arguments.study == "firehose" && given)
    throw UsageError("--study firehose simulates jobs of its own: give neither logs nor --pattern");
  if (!arguments.study.empty() && !given) arguments.patterns = kStudyPatterns;
  return arguments;
}

std::vector<SimulateArguments> parts_of(const SimulateArguments& arguments) {
  if (arguments.study.empty()) return {arguments};
  SimulateArguments helper = arguments;
  helper.values.retentions = {"helper"};
  if (arguments.study == "prediction") {
    helper.values.predictors = {"adaptive", "shortest", "periodicity", "schedule", "oracle"};
    helper.values.noises = {"none", "1%", "spikes", "warm-up", "regime", "drift", "irregular"};
    return {helper};
  }
  // The curve of one predictor, and the other strategies as points beside it.
  SimulateArguments points = helper, others = arguments;
  helper.values.budgets = {"0.01%", "0.03%", "0.1%", "0.3%", "0.5%", "1%", "3%", "5%"};
  points.values.predictors = {"shortest", "schedule", "oracle"};
  points.values.budgets = {"off"};
  others.values.retentions = {"on-demand", "lru", "leave-pinned"};
  return {helper, points, others};
}

/// The rows of a workload that its verdict is on: without noise and without a limit of the node, with the
/// first value of each list but the limits'.
std::vector<const SimulateRow*> plain_rows(const std::vector<SimulateRow>& rows, const Workload* workload) {
  std::vector<const SimulateRow*> plain;
  const SimulateRow* first = nullptr;
  const auto is_plain = [&](const SimulateRow& row) {
    return row.value("noise") == "none" && row.settings.node_limit == 0 &&
           std::all_of(dimensions().begin(), dimensions().end(), [&](const Dimension& d) {
             const std::string option = d.option;
             return option == "limit" || option == "retention" || option == "lru-size" ||
                    row.choice.at(option) == first->choice.at(option);
           });
  };
  for (const SimulateRow& row : rows) {
    if (row.workload != workload) continue;
    if (first == nullptr) first = &row;
    if (is_plain(row)) plain.push_back(&row);
  }
  return plain;
}

/// Simulates the ways that a user's rows lack, as far as two seconds of processor time go: for a verdict.
class OtherWays {
 public:
  OtherWays(const std::vector<const SimulateRow*>& plain, std::vector<Way>& ways)
      : like_(*plain.front()), ways_(ways) {
    for (const SimulateRow* row : plain) ways_.push_back({row->options, &row->result});
    for (const RetentionKind kind :
         {RetentionKind::leave_pinned, RetentionKind::helper, RetentionKind::lru, RetentionKind::on_demand})
      add({kind, "limit", "0"});
    const simulate::Result& any = *ways_.front().result;
    const auto a_node = static_cast<std::uint64_t>(ranks_of_node(any));
    for (const WayChange& change :
         ways_to_try(any.registered.oracle_peak / a_node, any.registered.leave_pinned_peak / a_node))
      add(change);
  }

 private:
  void add(const WayChange& change) {
    Options options = like_.options;
    options.limit = 0;
    check(set_option(options, "retention", to_string(change.retention)));
    check(set_option(options, change.option, change.value));
    const auto is_same = [&](const Way& way) {
      return format_options(way.options) == format_options(options);
    };
    if (std::any_of(ways_.begin(), ways_.end(), is_same) || !allowance_.allows()) return;
    simulate::Settings settings = like_.settings;
    settings.retention = options.retention;
    settings.limit = options.limit;
    settings.lru_bytes = options.lru_size;
    results_.push_back(simulate::simulate(*like_.workload, settings));
    ways_.push_back({options, &results_.back()});
  }

  const SimulateRow& like_;
  std::vector<Way>& ways_;
  std::deque<simulate::Result> results_;
  Allowance allowance_{2};
};

Verdict verdict_of(const std::vector<SimulateRow>& rows) {
  Verdict verdict;
  const Workload* workload = nullptr;
  for (const SimulateRow& row : rows) {
    if (row.workload == workload) continue;
    workload = row.workload;
    const std::vector<const SimulateRow*> plain = plain_rows(rows, workload);
    if (plain.empty()) continue;
    const bool is_log = !workload->log.empty(), is_only = rows.back().workload == rows.front().workload;
    Situation situation;
    if (!is_only) situation.name = is_log ? workload->log : workload->pattern;
    situation.simulated = "simulated";
    situation.program = typed_program(is_log ? workload->command : "CMD", row.result.ranks);
    const OtherWays others(plain, situation.ways);
    situation.least_gain = least_gain_of(row.options, row.settings.minimum_gain.machine);
    situation.default_gain = least_gain_of(Options(), row.settings.minimum_gain.machine);
    situation.has_library = workload->of_mpi;
    recommend(verdict, situation);
  }
  return verdict;
}

/// On-demand is possible: an oracle of the same workload, noise and NIC holds no more.
void bound_oracles(std::vector<SimulateRow>& rows) {
  for (const SimulateRow& on_demand : rows) {
    if (on_demand.settings.retention != RetentionKind::on_demand || on_demand.settings.limit != 0 ||
        on_demand.settings.node_limit != 0)
      continue;
    for (SimulateRow& row : rows)
      if (row.workload == on_demand.workload && row.value("noise") == on_demand.value("noise") &&
          row.nic() == on_demand.nic())
        bound_oracle(row.result.registered, on_demand.result);
  }
}

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

void run(const SimulateArguments& given) {
  const SimulateArguments arguments = with_study(given);
  if (arguments.study == "firehose") return print_firehose_study(arguments.json);
  const std::vector<Workload> workloads = workloads_of(arguments);
  std::vector<SimulateRow> rows;
  for (const Workload& workload : workloads)
    for (const SimulateArguments& part : parts_of(arguments)) add_rows(rows, part, workload);
  Progress progress("pinion simulate");
  for (SimulateRow& row : rows) {
    progress.step(fmt::format("row {} of {}: {}", &row - rows.data() + 1, rows.size(), strategy_text(row)));
    const bool profiled = !arguments.profile.empty() && row.predicts();
    if (profiled) read_profiles(row, arguments.profile);
    const std::clock_t begin = std::clock();
    row.result = simulate::simulate(*row.workload, row.settings);
    row.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (profiled) write_profiles(row, arguments.profile);
  }
  progress.clear();
  bound_oracles(rows);
  const Verdict judged = arguments.study.empty() ? verdict_of(rows) : Verdict();
  if (!arguments.json) {
    const std::string verdict = to_text(judged, "");
    fmt::print("{}{}{}", rows_text(rows, !arguments.study.empty()), verdict.empty() ? "" : "\n", verdict);
    return;
  }
  Json list = Json::array();
  for (const SimulateRow& row : rows) list.push_back(to_json(row));
  fmt::print(
      "{}", dump({{"schema", "pinion-simulate-1"}, {"rows", std::move(list)}, {"verdict", to_json(judged)}}));
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

void add_number(CLI::App* sub, const char* name, int& into, const char* text) {
  sub->add_option(name, into, text)->check(CLI::Range(1, 1 << 20))->type_name("N");
}

void add_strategies(CLI::App* sub, SimulateArguments& a) {
  add_list(*sub, "--retention", a.values.retentions,
           "observe, on-demand, leave-pinned, lru, helper, with commas [on-demand,leave-pinned,helper]");
  add_list(*sub, "--predictor", a.values.predictors,
           "predictors by name (`pinion info options --all`); also oracle, schedule");
  add_list(*sub, "--limit", a.values.limits,
           "upper bound on bytes registered in one process; 0: no limit [0]");
  add_list(*sub, "--node-limit", a.values.node_limits,
           "upper bound on bytes registered in all processes of a node, shared by need; 0: no limit [0]");
  add_list(*sub, "--time-budget", a.values.budgets,
           "upper bound on run time lost to retention helper, as shares, or off [1%]");
  add_retired_options(*sub);
  add_list(*sub, "--minimum-gain", a.values.minimum_gains,
           "bytes in use before retention helper lets any go, unless memory is short: sizes, or auto as in a "
           "run [0]");
  add_list(*sub, "--hugepages", a.values.hugepages,
           "hugepages as in a run, 550 us each that retention helper makes: auto, heap, off [off]");
  add_word(sub, "--profile", a.profile,
           "begin with an earlier run's profile, as in `pinion run --profile`; each row is a run", "FILE");
  add_list(*sub, "--noise", a.values.noises,
           "variation of computation: none, 1%, spikes, warm-up, regime, drift, irregular [none]");
  add_list(*sub, "--nic", a.values.nics,
           "cost models of registration: connectx, myrinet, none, or a file [recorded; connectx]");
}

void add_machine(CLI::App* sub, SimulateArguments& a) {
  add_number(sub, "--ranks", a.machine.ranks, "ranks to make of a log's: it is repeated as often as needed");
  add_number(sub, "--ppn", a.machine.ppn, "ranks on a node [as recorded; 1]");
  add_word(sub, "--placement", a.machine.placement,
           "node of each rank: packed, random:SEED, or nodes:N,N,... with the ranks of each node [packed]",
           "TEXT");
  sub->add_flag("--intranode", a.machine.intranode,
                "ranks of one node also register messages to each other, as in a run with intranode=on")
      ->disable_flag_override();
  add_word(sub, "--skew", a.machine.skew, "delay between the starts of a log's copies [1ms]", "TIME");
  add_number(sub, "--cores", a.machine.cores, "cores of a node [as recorded; one for each rank and helper]");
  add_word(
      sub, "--policy", a.machine.policy,
      "sharing of idle cores by helpers, given --cores: sleeping, none-if-busy, aggressive, conservative "
      "[sleeping]",
      "NAME");
  add_word(sub, "--policy-every", a.machine.policy_every,
           "acquires after which policies look at the node's ranks again [100]", "N");
  add_word(sub, "--time-slice", a.machine.time_slice, "time slice of helpers that share a core [4ms]",
           "TIME");
}

void add_details(CLI::App* sub, SimulateArguments& a) {
  sub->add_option("--iterations", a.iterations, "turns of a pattern's main loop [its own]")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  sub->add_option("--seed", a.seed, "seed of the noise [1]")->check(is_count)->type_name("N");
  add_list(*sub, "--window", a.values.windows, "previous communication points in a context signature [2]");
  add_word(sub, "--period-window", a.period_window,
           "points in a row that must repeat for a period, of predictor periodicity [4]", "N");
  add_list(*sub, "--lru-size", a.values.lru_sizes, "bytes that retention lru keeps registered [64M]");
  add_list(*sub, "--poll", a.values.polls,
           "longest sleep of the helper while communication goes on; 0ms: it never sleeps [1ms]");
  add_word(sub, "--wake-latency", a.machine.wake_latency,
           "delay until a sleeping helper runs [recorded; 60us]", "TIME");
  sub->add_option("--gflops", a.machine.gflops, "speed of a core, in patterns [1]")->type_name("X");
  sub->add_option("--bandwidth", a.machine.bandwidth, "bandwidth of the network in GB/s, in patterns [1.5]")
      ->type_name("X");
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("simulate", "Replay runs, or patterns of communication, under other strategies");
  auto a = std::make_shared<SimulateArguments>();
  sub->add_option("logs", a->logs, "log directories or files of one run")->type_name("DIR");
  std::string patterns = "NAME:CLASS:RANKS, or NAME:SIZE:RANKS; names:";
  for (const simulate::PatternName& name : simulate::pattern_names())
    patterns += std::string(" ") + name.name;
  add_list(*sub, "--pattern", a->patterns, patterns);
  add_strategies(sub, *a);
  add_machine(sub, *a);
  add_details(sub, *a);
  sub->add_option(
         "--study", a->study,
         "prediction: each predictor under each noise; budget: registered bytes against the time "
         "budget, the other strategies beside it. Both take --pattern or logs, else a choice of patterns. "
         "firehose: static shares against lending; the paper's working sets")
      ->check(CLI::IsMember({"prediction", "budget", "firehose"}))
      ->type_name("TEXT");
  sub->add_flag("--json", a->json, "one JSON object instead of a table")->disable_flag_override();
  sub->callback([a] { run(*a); });
}

}  // namespace pinion::cli
