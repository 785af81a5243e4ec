// `pinion simulate`: the cost of a recorded run, or of a pattern of communication, under other strategies,
// limits, NICs and numbers of ranks, a row for each combination of the values given; and the helper-threads
// paper, one figure a command (paper.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <ctime>
#include <iterator>
#include <map>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "device/model/cost_model.h"
#include "engine/engine_options.h"
#include "engine/profile_file.h"
#include "cli/simulate/firehose_study.h"
#include "cli/simulate/paper.h"
#include "cli/simulate/paper_measured.h"
#include "predict/profile.h"
#include "cli/progress.h"
#include "cli/report/report_json.h"
#include "cli/report/report_tables.h"
#include "simulate/simulation.h"
#include "cli/simulate/strategies.h"
#include "cli/text.h"
#include "cli/report/verdict.h"

namespace pinion::cli {

namespace {

using simulate::Result;
using simulate::Settings;
using simulate::Workload;

struct Arguments {
  std::vector<std::string> logs, patterns;
  std::vector<std::string> retentions{"on-demand", "leave-pinned", "helper"};
  std::vector<std::string> predictors{Options{}.predictor};
  std::vector<std::string> limits{"0"}, node_limits{"0"};
  std::vector<std::string> noises{"none"};
  std::vector<std::string> budgets{"0.5%"};
  std::vector<std::string> helper_shares{format_share(Options().helper_share)};
  std::vector<std::string> start_credits{"auto"}, goals{"mean"}, polls{"1ms"};
  std::vector<std::string> windows{"2"}, lru_sizes{"64M"}, nics{""};  ///< no NIC: the recorded one
  std::string period_window = "4", study;
  std::string wake_latency, skew, profile, placement = "packed";
  std::string policy = "sleeping", policy_every = "100", time_slice = "4ms";
  int ranks = 0, ppn = 0, cores = 0;
  std::uint64_t iterations = 0, seed = 1;
  double gflops = 1, bandwidth = 1.5;
  bool json = false, intranode = false;
  std::optional<int> figure, table;
  std::string section, from;
  bool paper = false;
};

/// An option that takes a list: a row for each combination of values.
struct Dimension {
  const char* option;
  std::vector<std::string> Arguments::*values;
  /// Under other strategies the first value stands for all.
  bool (*matters)(RetentionKind);
  const char* label;  ///< in tables; null: it has a form of its own
};
bool always(RetentionKind) { return true; }
bool where_predicted(RetentionKind kind) { return traits_of(kind).predicts; }
bool where_acting(RetentionKind kind) { return traits_of(kind).acts; }
bool where_lru(RetentionKind kind) { return kind == RetentionKind::lru; }

constexpr Dimension kDimensions[] = {
    {"noise", &Arguments::noises, always, "noise"},
    {"nic", &Arguments::nics, always, nullptr},
    {"limit", &Arguments::limits, always, "limit"},
    {"node-limit", &Arguments::node_limits, always, "node limit"},
    {"retention", &Arguments::retentions, always, nullptr},
    {"predictor", &Arguments::predictors, where_predicted, nullptr},
    {"window", &Arguments::windows, where_predicted, "window"},
    {"lru-size", &Arguments::lru_sizes, where_lru, "size"},
    {"time-budget", &Arguments::budgets, where_acting, "budget"},
    {"helper-share", &Arguments::helper_shares, where_acting, "helper share"},
    {"start-credit", &Arguments::start_credits, where_acting, "start credit"},
    {"minimize", &Arguments::goals, where_acting, "minimize"},
    {"poll", &Arguments::polls, where_acting, "poll"},
};

/// The values of a row, by option.
using Choice = std::map<std::string, std::string>;

struct Row {
  const Workload* workload;
  Options options;  ///< of a run like it
  Settings settings;
  Choice choice;
  Result result;
  double cpu_seconds;
  bool names_nic;  ///< other rows have another one

  const std::string& value(const char* option) const { return choice.at(option); }
  std::string nic() const { return settings.nic ? settings.nic->name : "recorded"; }
  bool acts() const { return traits_of(settings.retention).acts; }
  bool predicts() const { return traits_of(settings.retention).predicts; }
};

void check(const Error& error) {
  if (error) throw UsageError(error.message);
}

RetentionKind retention_of(const Choice& choice) {
  Options options;
  if (const auto chosen = choice.find("retention"); chosen != choice.end())
    check(set_option(options, "retention", chosen->second));
  return options.retention;
}

Duration duration_of(const char* option, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration) throw UsageError(fmt::format("{}: '{}' is not a time such as 500us or 5ms", option, text));
  return *duration;
}

/// CLI11 lets numbers below 0 and above the most wrap.
std::string is_count(const std::string& text) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const bool valid = text.size() < 20 && std::all_of(text.begin(), text.end(), digit);
  return valid ? "" : fmt::format("'{}' is not a whole number below 10^19", text);
}

/// 10^9 a second.
double rate_of(const char* option, double rate) {
  if (!(rate >= 1e-3 && rate <= 1e6))  // no number is neither
    throw UsageError(fmt::format("{}: {} is not from 0.001 to 1000000", option, rate));
  return rate * 1e9;
}

simulate::Machine machine_of(const Arguments& arguments) {
  simulate::Machine machine;
  machine.flops = rate_of("--gflops", arguments.gflops);
  machine.network_bytes_per_second = rate_of("--bandwidth", arguments.bandwidth);
  return machine;
}

std::vector<Workload> workloads_of(const Arguments& arguments) {
  std::vector<Workload> workloads;
  for (const std::string& text : arguments.patterns) {
    simulate::Pattern pattern;
    check(simulate::find_pattern(text, pattern));
    if (arguments.ranks)
      throw UsageError("--ranks is for logs; a pattern's stand in its name: NAME:CLASS:RANKS");
    if (!arguments.skew.empty())
      throw UsageError("--skew is for logs; the ranks of a pattern begin together");
    simulate::Placement placement, apart;
    check(
        simulate::Placement::make(pattern.ranks, std::max(1, arguments.ppn), arguments.placement, placement));
    check(simulate::Placement::make(pattern.ranks, 1, "packed", apart));
    workloads.push_back(simulate::pattern_workload(pattern, arguments.iterations,
                                                   arguments.intranode ? std::move(apart) : placement,
                                                   machine_of(arguments)));
    workloads.back().placement = std::move(placement);
  }
  if (!arguments.logs.empty()) {
    if (arguments.iterations)
      throw UsageError("--iterations is for patterns; a log has as many as were recorded");
    std::vector<runlog::Log> logs;
    check(runlog::read_logs(arguments.logs, logs));
    simulate::Tiling tiling;
    tiling.ranks = arguments.ranks;
    tiling.ppn = arguments.ppn;
    tiling.placement = arguments.placement;
    if (!arguments.skew.empty()) tiling.skew = duration_of("--skew", arguments.skew);
    if (!tiling.ppn && tiling.placement != "packed")
      throw UsageError(
          "--placement of a log's ranks needs --ppn; without it, they run where they were recorded");
    const std::string command = logs.front().header.command;
    check(simulate::log_workload(std::move(logs), tiling, workloads.emplace_back()));
    workloads.back().command = command;
    workloads.back().log = fmt::format("{}", fmt::join(arguments.logs, " "));
  }
  if (workloads.empty()) throw UsageError("nothing to simulate: give logs, or --pattern NAME:CLASS:RANKS");
  return workloads;
}

/// Whether there are calls to learn their cost from: those of a run that was only measured are not.
bool has_recorded_nic(const Workload& workload) {
  return std::any_of(workload.recorded.begin(), workload.recorded.end(),
                     [](const simulate::Recorded& of) { return !of.measured; });
}

/// Absent: as recorded.
std::optional<CostModel> nic_of(const std::string& nic, const Workload& workload) {
  if (nic.empty() && has_recorded_nic(workload)) return std::nullopt;
  const CostModelResult loaded = load_cost_model(nic.empty() ? "connectx" : nic);
  check(loaded.error);
  return loaded.model;
}

Row row_of(const Arguments& arguments, const Workload& workload, const Choice& choice) {
  Options options;
  for (const auto& [option, value] : choice)
    if (option != "noise" && option != "nic" && option != "predictor")
      check(set_option(options, option, value));
  check(set_option(options, "period-window", arguments.period_window));
  check(set_option(options, "policy", arguments.policy));
  check(set_option(options, "policy-every", arguments.policy_every));
  (void)set_option(options, "predictor", choice.at("predictor"));  // some are for simulations alone
  Row row{&workload, options, simulated(options), choice, {}, 0, arguments.nics.size() > 1};
  Settings& settings = row.settings;
  settings.predictor = row.value("predictor");
  if (!simulate::is_predictor(settings.predictor)) {
    Options ignored;
    Error error = set_option(ignored, "predictor", settings.predictor);
    throw UsageError(fmt::format("{}, oracle, schedule", error.message));
  }
  settings.nic = nic_of(row.value("nic"), workload);
  settings.cores = arguments.cores ? arguments.cores : workload.cores;
  settings.time_slices.slice = duration_of("--time-slice", arguments.time_slice);
  if (!arguments.wake_latency.empty())
    settings.wake_latency = duration_of("--wake-latency", arguments.wake_latency);
  settings.seed = arguments.seed;
  check(simulate::NoiseModel::parse(row.value("noise"), settings.noise));
  return row;
}

/// A row for each combination of the values from `dimension` on.
void add_rows(std::vector<Row>& rows, const Arguments& arguments, const Workload& workload,
              Choice choice = {}, const Dimension* dimension = std::begin(kDimensions)) {
  if (dimension == std::end(kDimensions)) {
    rows.push_back(row_of(arguments, workload, choice));
    return;
  }
  for (const std::string& value : arguments.*dimension->values) {
    choice[dimension->option] = value;
    add_rows(rows, arguments, workload, choice, dimension + 1);
    if (!dimension->matters(retention_of(choice))) break;
  }
}

// ---- studies: tables of many rows, one command each ----

/// Of each kind of program one that takes seconds to simulate.
const std::vector<std::string> kStudyPatterns = {
    "bt:B:4",     "sp:B:4",        "lu:B:4",        "cg:B:4",      "ft:B:4",       "mg:C:4",
    "is:C:4",     "reuse:1M:2",    "no-reuse:1M:2", "nested:1M:2", "warm-up:1M:2", "regime-change:1M:2",
    "drift:1M:2", "irregular:1M:2"};

/// The lists of --study, beside the given ones.
Arguments with_study(Arguments arguments) {
  const bool given = !arguments.patterns.empty() || !arguments.logs.empty();
  if (arguments.study == "firehose" && given)
    throw UsageError("--study firehose simulates jobs of its own: give neither logs nor --pattern");
  if (!arguments.study.empty() && !given) arguments.patterns = kStudyPatterns;
  return arguments;
}

std::vector<Arguments> parts_of(const Arguments& arguments) {
  if (arguments.study.empty()) return {arguments};
  Arguments helper = arguments;
  helper.retentions = {"helper"};
  if (arguments.study == "prediction") {
    helper.predictors = {"adaptive", "shortest", "periodicity", "schedule", "oracle"};
    helper.noises = {"none", "1%", "spikes", "warm-up", "regime", "drift", "irregular"};
    return {helper};
  }
  // The curve of one predictor, and the other strategies as points beside it.
  Arguments points = helper, others = arguments;
  helper.budgets = {"0.01%", "0.03%", "0.1%", "0.3%", "0.5%", "1%", "3%", "5%"};
  points.predictors = {"shortest", "schedule", "oracle"};
  points.budgets = {"off"};
  others.retentions = {"on-demand", "lru", "leave-pinned"};
  return {helper, points, others};
}

Json row_json(const Row& row) {
  const Result& r = row.result;
  Json budget, helper_share;
  if (row.acts()) {
    helper_share = to_json(r.helper_share);
    helper_share["option"] = row.value("helper-share");
    budget = to_json(r.budget);
    budget["option"] = row.value("time-budget");
  }
  Json options = Json::object();
  for (const Dimension& dimension : kDimensions)
    if (dimension.matters(row.settings.retention) && !row.value(dimension.option).empty())
      options[dimension.option] = row.value(dimension.option);
  const auto name = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"log", name(row.workload->log)},
          {"pattern", name(row.workload->pattern)},
          {"retention", to_string(row.settings.retention)},
          {"options", std::move(options)},
          {"predictor", row.predicts() ? Json(row.settings.predictor) : Json(nullptr)},
          {"time_budget", budget},
          {"helper_share", helper_share},
          {"policy", to_string(row.settings.policy)},
          {"limit_bytes", row.settings.limit},
          {"node_limit_bytes", row.settings.node_limit},
          {"noise", row.value("noise")},
          {"nic", row.nic()},
          {"ranks", r.ranks},
          {"ranks_simulated", r.ranks_simulated},
          {"nodes", r.nodes},
          {"nodes_simulated", r.nodes_simulated},
          {"seconds", r.seconds},
          {"seconds_added", r.cost.added()},
          {"registered_bytes", to_json(r.registered)},
          {"acquires", to_json(r.acquires)},
          {"registrations", r.registrations},
          {"deregistrations", r.deregistrations},
          {"critical_path_seconds", to_json(r.cost)},
          {"prediction", to_json(r.prediction)},
          {"helper_device_seconds", r.cost.helper_cpu},
          {"events", r.events},
          {"events_simulated", r.events_simulated},
          {"cpu_seconds", row.cpu_seconds}};
}

/// The subject of a row: its strategy, and the values that differ from the defaults.
std::string strategy_text(const Row& row) {
  static const Arguments defaults;
  std::string strategy = to_string(row.settings.retention);
  if (row.predicts()) strategy += " (" + row.settings.predictor + ")";
  if (row.names_nic) strategy += ", NIC " + row.nic();
  if (row.acts() && row.settings.policy != PolicyKind::sleeping)
    strategy += fmt::format(", {}", to_string(row.settings.policy));
  for (const Dimension& dimension : kDimensions) {
    const std::string& value = row.value(dimension.option);
    if (dimension.label && dimension.matters(row.settings.retention) &&
        value != (defaults.*dimension.values).front())
      strategy += fmt::format(", {} {}", dimension.label, value);
  }
  return strategy;
}

std::string added_text(const Result& r) {
  return fmt::format("{} ({})", seconds_text(r.cost.added()),
                     percent_text(r.seconds > 0 ? r.cost.added() / r.seconds : 0));
}

std::string table_text(const std::vector<Row>& rows) {
  Table memory({"strategy", "run time", "registered", "oracle", "leave-pinned"});
  Table time({"strategy", "seconds added", "misses / late / bounced"});
  Table spent({"time spent", "on the program's threads", "by the helper"});
  for (const Row& row : rows) {
    const Result& r = row.result;
    const runlog::RegisteredBytes& b = r.registered;
    memory.add({strategy_text(row), seconds_text(r.seconds), pair_text(static_cast<double>(b.peak), b.mean),
                pair_text(static_cast<double>(b.oracle_peak), b.oracle_mean),
                bytes_text(static_cast<double>(b.leave_pinned_peak))});
    time.add({strategy_text(row), added_text(r),
              fmt::format("{} / {} / {}", count_text(r.acquires.misses), count_text(r.acquires.late),
                          count_text(r.acquires.bounced))});
    if (row.acts()) spent.add({strategy_text(row), spent_text(r.budget), spent_text(r.helper_share)});
  }
  const bool any_acts = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.acts(); });
  return memory.text() + "\n" + time.text() + (any_acts ? "\n" + spent.text() : "");
}

/// Predictions, and registered bytes as shares of leave-pinned's.
std::string study_text(const std::vector<Row>& rows) {
  Table prediction(
      {"strategy", "within 0.5 / 5 %", "at release", "late", "spent on threads", "spent by helper"});
  Table memory({"strategy", "seconds added", "peak", "mean", "oracle peak / mean"});
  for (const Row& row : rows) {
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
                    row.acts() ? spent_text(r.budget) : "-", row.acts() ? spent_text(r.helper_share) : "-"});
    memory.add({strategy_text(row), added_text(r), share(static_cast<double>(b.peak), peak),
                share(b.mean, b.leave_pinned_mean),
                share(static_cast<double>(b.oracle_peak), peak) + " / " +
                    share(b.oracle_mean, b.leave_pinned_mean)});
  }
  return memory.text() + "\n" + prediction.text();
}

/// Of rows without noise and without a limit of the node, with the first value of each list but the limits'.
Verdict verdict_of(const std::vector<Row>& rows) {
  Verdict verdict;
  for (std::size_t i = 0; i < rows.size();) {
    const Workload* workload = rows[i].workload;
    std::vector<SimulatedRow> of;
    const Row& first = rows[i];
    const auto is_plain = [&](const Row& row) {
      return row.value("noise") == "none" && row.settings.node_limit == 0 &&
             std::all_of(std::begin(kDimensions), std::end(kDimensions), [&](const Dimension& d) {
               const std::string option = d.option;
               return option == "limit" || option == "retention" ||
                      row.choice.at(option) == first.choice.at(option);
             });
    };
    for (; i < rows.size() && rows[i].workload == workload; ++i)
      if (is_plain(rows[i])) of.push_back({rows[i].options, &rows[i].result});
    const bool is_log = !workload->log.empty(), is_only = rows.back().workload == rows.front().workload;
    judge(verdict,
          is_only  ? ""
          : is_log ? workload->log
                   : workload->pattern,
          typed_program(is_log ? workload->command : "CMD", first.result.ranks), of);
  }
  return verdict;
}

std::string text(const std::vector<Row>& rows, bool study) {
  std::string out;
  for (std::size_t i = 0; i < rows.size();) {
    const Workload* workload = rows[i].workload;
    std::vector<Row> of;
    while (i < rows.size() && rows[i].workload == workload) of.push_back(rows[i++]);
    const Result& r = of.front().result;
    out += fmt::format("{}: {} on {}{}", workload->log.empty() ? workload->pattern : workload->log,
                       plural_text(static_cast<std::uint64_t>(r.ranks), "rank", "ranks"),
                       plural_text(static_cast<std::uint64_t>(r.nodes), "node", "nodes"),
                       of.front().names_nic ? "" : ", NIC " + of.front().nic());
    if (r.ranks_simulated < r.ranks)
      out += fmt::format("; {} simulated, the others do the same as one of them", r.ranks_simulated);
    out += "\n" + (study ? study_text(of) : table_text(of));
    if (workload->covers_seconds > 0)
      out += fmt::format("The log lost events: this is of its first {}.\n",
                         seconds_text(workload->covers_seconds));
  }
  return out + "\n" +
         wrapped(std::string(study ? "Peak and mean are shares of leave-pinned's. "
                                   : "Registered and oracle: peak / mean; leave-pinned: its peak. ") +
                     "Simulated: times come from the NIC's cost model and the program's own times; "
                     "registered bytes are "
                     "of the node with the highest peak, sum over its ranks. Seconds added: the time that "
                     "registration "
                     "costs beyond leave-pinned's.",
                 "");
}

/// Ranks that do the same have one profile: that of the first of them.
std::vector<std::string> profile_paths(const Row& row, const std::string& path) {
  std::vector<std::string> paths(row.workload->programs.size());
  for (std::size_t rank = 0; rank < row.workload->ranks.size(); ++rank) {
    std::string& of = paths[row.workload->ranks[rank].program];
    if (of.empty()) of = profile_path(path, static_cast<int>(rank));
  }
  return paths;
}

void read_profiles(Row& row, const std::string& path) {
  row.settings.keep_profiles = true;
  for (const std::string& of : profile_paths(row, path)) {
    std::string& profile = row.settings.profiles.emplace_back();
    if (of.empty()) continue;  // no rank follows this program
    if (const Error unread = read_profile(of, profile)) throw UsageError(unread.message);
    if (profile.empty()) continue;
    const Error unused = Profile().from_bytes(profile);
    if (!unused) continue;
    fmt::print(stderr, "pinion: no profile: {}\n", unused.message);
    profile.clear();
  }
}

void write_profiles(const Row& row, const std::string& path) {
  const std::vector<std::string> paths = profile_paths(row, path);
  for (std::size_t program = 0; program < paths.size(); ++program)
    if (const std::string& profile = row.result.profiles[program]; !profile.empty())
      check(write_profile(paths[program], profile));
}

/// Whether the paper was asked for: prints it.
bool of_paper(const Arguments& arguments) {
  if (!arguments.from.empty() && !arguments.figure && arguments.section.empty())
    throw UsageError("--from goes with --figure 2, --figure 9, --figure 10 or --section 4.3");
  if (arguments.paper) {
    Json all = Json::array();
    for (const PaperResult& result : whole_paper()) {
      if (arguments.json)
        all.push_back(to_json(result));
      else
        fmt::print("{}\n", to_text(result));
    }
    if (arguments.json)
      fmt::print("{}", dump({{"schema", "pinion-whole-paper-1"}, {"results", std::move(all)}}));
    return true;
  }
  PaperResult result;
  const bool measured = !arguments.from.empty();
  if (arguments.figure)
    result = measured ? measured_figure(*arguments.figure, arguments.from) : paper_figure(*arguments.figure);
  else if (arguments.table)
    result = paper_table(*arguments.table);
  else if (!arguments.section.empty())
    result =
        measured ? measured_section(arguments.section, arguments.from) : paper_section(arguments.section);
  else
    return false;
  fmt::print("{}", arguments.json ? dump(to_json(result)) : to_text(result));
  return true;
}

void run(const Arguments& given) {
  const Arguments arguments = with_study(given);
  if (of_paper(arguments)) return;
  if (arguments.study == "firehose") return print_firehose_study(arguments.json);
  const std::vector<Workload> workloads = workloads_of(arguments);
  std::vector<Row> rows;
  for (const Workload& workload : workloads)
    for (const Arguments& part : parts_of(arguments)) add_rows(rows, part, workload);
  Progress progress("pinion simulate");
  for (Row& row : rows) {
    progress.step(fmt::format("row {} of {}: {}", &row - rows.data() + 1, rows.size(), strategy_text(row)));
    const bool profiled = !arguments.profile.empty() && row.predicts();
    if (profiled) read_profiles(row, arguments.profile);
    const std::clock_t begin = std::clock();
    row.result = simulate::simulate(*row.workload, row.settings);
    row.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (profiled) write_profiles(row, arguments.profile);
  }
  progress.clear();
  if (!arguments.json) {
    const std::string verdict = arguments.study.empty() ? to_text(verdict_of(rows), "") : "";
    fmt::print("{}{}{}", text(rows, !arguments.study.empty()), verdict.empty() ? "" : "\n", verdict);
    return;
  }
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(row_json(row));
  fmt::print("{}", dump({{"schema", "pinion-simulate-1"},
                         {"rows", std::move(list)},
                         {"verdict", to_json(verdict_of(rows))}}));
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("simulate", "Replay runs, or patterns of communication, under other strategies");
  auto a = std::make_shared<Arguments>();
  const auto list = [&](const char* name, std::vector<std::string>& into, const char* text) {
    sub->add_option(name, into, text)->delimiter(',')->allow_extra_args(false)->type_name("LIST");
  };
  const auto word = [&](const char* name, std::string& into, const char* text, const char* type) {
    sub->add_option(name, into, text)->type_name(type);
  };
  sub->add_option("logs", a->logs, "log directories or files of one run")->type_name("DIR");
  std::string patterns = "NAME:CLASS:RANKS, or NAME:SIZE:RANKS; names:";
  for (const simulate::PatternName& name : simulate::pattern_names())
    patterns += std::string(" ") + name.name;
  list("--pattern", a->patterns, patterns.c_str());
  list("--retention", a->retentions,
       "observe, on-demand, leave-pinned, lru, helper, with commas [on-demand,leave-pinned,helper]");
  list("--predictor", a->predictors,
       "predictors by name (`pinion info options --all`); also oracle, schedule");
  list("--limit", a->limits, "most bytes registered in one process; 0: no limit [0]");
  list("--node-limit", a->node_limits,
       "most bytes registered in all processes of a node together, shared by need; 0: no limit [0]");
  list("--time-budget", a->budgets, "of retention helper, shares of the run, or off [0.5%]");
  list("--helper-share", a->helper_shares,
       "most of the run's time that may be lost to helpers, where --cores leaves none idle; or off [6%]");
  list("--start-credit", a->start_credits, "of the time budget [auto]");
  list("--minimize", a->goals, "the goal of spending the time budget: mean, peak [mean]");
  word("--profile", a->profile,
       "begin with an earlier run's profile, as in `pinion run --profile`; each row is a run", "FILE");
  list("--noise", a->noises, "of computation: none, 1%, spikes, warm-up, regime, drift, irregular [none]");
  list("--nic", a->nics,
       "cost models of registration: connectx, myrinet, none, or a file [recorded; connectx]");
  sub->add_option("--ranks", a->ranks, "ranks to make of a log's: it is repeated as often as needed")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  sub->add_option("--ppn", a->ppn, "ranks on a node [as recorded; 1]")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  word("--placement", a->placement, "packed, or random:SEED [packed]", "TEXT");
  sub->add_flag("--intranode", a->intranode,
                "ranks of one node also register messages to each other, as in a run with intranode=on")
      ->disable_flag_override();
  word("--skew", a->skew, "how much later each further copy of a log begins [1ms]", "TIME");
  sub->add_option("--cores", a->cores, "cores of a node [as recorded; one for each rank and helper]")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  word("--policy", a->policy,
       "of helpers, given --cores: sleeping, none-if-busy, aggressive, conservative [sleeping]", "NAME");
  word("--policy-every", a->policy_every,
       "acquires after which policies look at the node's ranks again [100]", "N");
  word("--time-slice", a->time_slice, "of helpers that share a core [4ms]", "TIME");
  sub->add_option("--iterations", a->iterations, "turns of a pattern's main loop [its own]")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  sub->add_option("--seed", a->seed, "of the noise [1]")->check(is_count)->type_name("N");
  list("--window", a->windows, "previous communication points in a context signature [2]");
  word("--period-window", a->period_window,
       "points in a row that must repeat for a period, of predictor periodicity [4]", "N");
  list("--lru-size", a->lru_sizes, "bytes that retention lru keeps registered [64M]");
  list("--poll", a->polls, "longest sleep of the helper while communication goes on [1ms]");
  word("--wake-latency", a->wake_latency, "how late the helper wakes [recorded; 60us]", "TIME");
  sub->add_option("--gflops", a->gflops, "of a core, in patterns [1]")->type_name("X");
  sub->add_option("--bandwidth", a->bandwidth, "of the network in GB/s, in patterns [1.5]")->type_name("X");
  sub->add_option(
         "--study", a->study,
         "prediction: each predictor under each noise; budget: registered bytes against the time "
         "budget, the other strategies beside it. Of --pattern or logs, else of a choice of patterns. "
         "firehose: static shares against lending; the paper's working sets")
      ->check(CLI::IsMember({"prediction", "budget", "firehose"}))
      ->type_name("TEXT");
  // The paper's figures have programs and settings of their own.
  const std::vector<CLI::Option*> others = sub->get_options();
  const std::vector<CLI::Option*> paper = {
      sub->add_option("--figure", a->figure, "the helper-threads paper's figure, its values beside ours")
          ->type_name("N"),
      sub->add_option("--table", a->table, "the same for its tables")->type_name("N"),
      sub->add_option("--section", a->section, "the same for section 4.3, the overhead of recording")
          ->type_name("N"),
      sub->add_flag("--paper", a->paper, "all of them")->disable_flag_override()};
  for (CLI::Option* option : paper) {
    for (CLI::Option* other : paper)
      if (other != option) option->excludes(other);
    for (CLI::Option* other : others)
      if (other != sub->get_help_ptr()) option->excludes(other);
  }
  const auto measured =
      sub->add_option("--from", a->from,
                      "with --figure 2, --figure 9, --figure 10 or --section 4.3: ours measured, "
                      "from a file of `pinion bench transfers --json`")
          ->type_name("FILE");
  for (CLI::Option* option : others)
    if (option != sub->get_help_ptr()) measured->excludes(option);
  sub->add_flag("--json", a->json, "one JSON object instead of a table")->disable_flag_override();
  sub->callback([a] { run(*a); });
}

}  // namespace pinion::cli
