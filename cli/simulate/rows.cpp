#include "cli/simulate/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/simulate/strategies.h"
#include "device/model/cost_model.h"

namespace pinion::cli {

namespace {

using simulate::Settings;
using simulate::Workload;

bool always(RetentionKind) { return true; }
bool where_predicted(RetentionKind kind) { return traits_of(kind).predicts; }
bool where_acting(RetentionKind kind) { return traits_of(kind).acts; }
bool where_lru(RetentionKind kind) { return kind == RetentionKind::lru; }

const std::vector<Dimension> kDimensions = {
    {"noise", &RowValues::noises, always, "noise"},
    {"nic", &RowValues::nics, always, nullptr},
    {"limit", &RowValues::limits, always, "limit"},
    {"node-limit", &RowValues::node_limits, always, "node limit"},
    {"retention", &RowValues::retentions, always, nullptr},
    {"predictor", &RowValues::predictors, where_predicted, nullptr},
    {"window", &RowValues::windows, where_predicted, "window"},
    {"lru-size", &RowValues::lru_sizes, where_lru, "size"},
    {"time-budget", &RowValues::budgets, where_acting, "budget"},
    {"minimum-gain", &RowValues::minimum_gains, where_acting, "minimum gain"},
    {"hugepages", &RowValues::hugepages, always, "hugepages"},
    {"poll", &RowValues::polls, where_acting, "poll"},
};

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

/// 10^9 a second.
double rate_of(const char* option, double rate) {
  if (!(rate >= 1e-3 && rate <= 1e6))  // no number is neither
    throw UsageError(fmt::format("{}: {} is not from 0.001 to 1000000", option, rate));
  return rate * 1e9;
}

simulate::Machine machine_of(const SimulateArguments& arguments) {
  simulate::Machine machine;
  machine.flops = rate_of("--gflops", arguments.machine.gflops);
  machine.network_bytes_per_second = rate_of("--bandwidth", arguments.machine.bandwidth);
  return machine;
}

}  // namespace

std::vector<Workload> workloads_of(const SimulateArguments& arguments) {
  std::vector<Workload> workloads;
  for (const std::string& text : arguments.patterns) {
    simulate::Pattern pattern;
    check(simulate::find_pattern(text, pattern));
    if (arguments.machine.ranks)
      throw UsageError("--ranks is for logs; a pattern's stand in its name: NAME:CLASS:RANKS");
    if (!arguments.machine.skew.empty())
      throw UsageError("--skew is for logs; the ranks of a pattern begin together");
    simulate::Placement placement, apart;
    check(simulate::Placement::make(pattern.ranks, std::max(1, arguments.machine.ppn),
                                    arguments.machine.placement, placement));
    check(simulate::Placement::make(pattern.ranks, 1, "packed", apart));
    workloads.push_back(simulate::pattern_workload(pattern, arguments.iterations,
                                                   arguments.machine.intranode ? std::move(apart) : placement,
                                                   machine_of(arguments)));
    workloads.back().placement = std::move(placement);
  }
  if (!arguments.logs.empty()) {
    if (arguments.iterations)
      throw UsageError("--iterations is for patterns; a log has as many as were recorded");
    std::vector<runlog::Log> logs;
    check(runlog::read_logs(arguments.logs, logs));
    simulate::Tiling tiling;
    tiling.ranks = arguments.machine.ranks;
    tiling.ppn = arguments.machine.ppn;
    tiling.placement = arguments.machine.placement;
    if (!arguments.machine.skew.empty()) tiling.skew = duration_of("--skew", arguments.machine.skew);
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

namespace {

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

SimulateRow row_of(const SimulateArguments& arguments, const Workload& workload, const Choice& choice) {
  Options options;
  const bool polls_always = parse_duration(choice.at("poll")) == Duration{0};  // as no run can
  for (const auto& [option, value] : choice)
    if (option != "noise" && option != "nic" && option != "predictor" && !(option == "poll" && polls_always))
      check(set_option(options, option, value));
  check(set_option(options, "period-window", arguments.period_window));
  check(set_option(options, "policy", arguments.machine.policy));
  check(set_option(options, "policy-every", arguments.machine.policy_every));
  (void)set_option(options, "predictor", choice.at("predictor"));  // some are for simulations alone
  const int ranks_of_node = std::max(1, workload.placement.ranks() / std::max(1, workload.placement.nodes()));
  const ProcessMemory memory =
      process_memory(workload.limit_bytes, recorded_options(workload.options), ranks_of_node);
  SimulateRow row{&workload, options, simulated(options, memory),      choice,
                  {},        0,       arguments.values.nics.size() > 1};
  Settings& settings = row.settings;
  settings.predictor = row.value("predictor");
  if (polls_always) settings.poll = 0;
  if (!simulate::is_predictor(settings.predictor)) {
    Options ignored;
    Error error = set_option(ignored, "predictor", settings.predictor);
    throw UsageError(fmt::format("{}, oracle, schedule", error.message));
  }
  settings.nic = nic_of(row.value("nic"), workload);
  settings.cores = arguments.machine.cores ? arguments.machine.cores : workload.cores;
  settings.time_slices.slice = duration_of("--time-slice", arguments.machine.time_slice);
  if (!arguments.machine.wake_latency.empty())
    settings.wake_latency = duration_of("--wake-latency", arguments.machine.wake_latency);
  settings.seed = arguments.seed;
  check(simulate::NoiseModel::parse(row.value("noise"), settings.noise));
  return row;
}

/// A row for each combination of the values from `dimension` on.
void add_rows(std::vector<SimulateRow>& rows, const SimulateArguments& arguments, const Workload& workload,
              Choice choice, std::size_t at) {
  if (at == kDimensions.size()) {
    rows.push_back(row_of(arguments, workload, choice));
    return;
  }
  const Dimension& dimension = kDimensions[at];
  for (const std::string& value : arguments.values.*dimension.values) {
    choice[dimension.option] = value;
    add_rows(rows, arguments, workload, choice, at + 1);
    if (!dimension.matters(retention_of(choice))) break;
  }
}

}  // namespace

const std::vector<Dimension>& dimensions() { return kDimensions; }

void add_rows(std::vector<SimulateRow>& rows, const SimulateArguments& arguments, const Workload& workload) {
  add_rows(rows, arguments, workload, {}, 0);
}

}  // namespace pinion::cli
