#include "cli/simulate/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "cli/simulate/strategies.h"
#include "device/model/cost_model.h"

namespace pinion::cli {

using simulate::Settings;
using simulate::Workload;

bool always(RetentionKind) { return true; }
bool where_predicted(RetentionKind kind) { return traits_of(kind).predicts; }
bool where_acting(RetentionKind kind) { return traits_of(kind).acts; }

std::vector<Dimension> log_dimensions() {
  const auto where_lru = [](RetentionKind kind) { return kind == RetentionKind::lru; };
  return {
      {"nic",
       "cost models of registration: connectx, myrinet, none, or a file [recorded; connectx]",
       {""},
       always,
       nullptr},
      {"limit", "upper bound on bytes registered in one process; 0: no limit [0]", {"0"}, always, "limit"},
      {"node-limit",
       "upper bound on bytes registered in all processes of a node, shared by need; 0: no limit [0]",
       {"0"},
       always,
       "node limit"},
      {"retention",
       "observe, on-demand, leave-pinned, lru, helper, with commas [on-demand,leave-pinned,helper]",
       {"on-demand", "leave-pinned", "helper"},
       always,
       nullptr},
      {"predictor",
       "predictors by name (`pinion info options --all`); also oracle, schedule",
       {Options{}.predictor},
       where_predicted,
       nullptr},
      {"lru-size", "bytes that retention lru keeps registered [64M]", {"64M"}, where_lru, "size"},
      {"time-budget",
       "upper bound on run time lost to retention helper, as shares, or off [1%]",
       {format_share(Options().time_budget)},
       where_acting,
       "budget"},
      {"minimum-gain",
       "bytes in use before retention helper lets any go, unless memory is short: sizes, or auto as in a run "
       "[0]",
       {"0"},
       where_acting,
       "minimum gain"},
      {"hugepages",
       "hugepages as in a run, 550 us each that retention helper makes: auto, heap, off [off]",
       {"off"},
       always,
       "hugepages"},
  };
}

Dimension& SimulateArguments::dimension(const std::string& option) {
  return *std::find_if(dimensions.begin(), dimensions.end(),
                       [&](const Dimension& of) { return of.option == option; });
}

Duration duration_of(const char* option, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration) throw UsageError(fmt::format("{}: '{}' is not a time such as 500us or 5ms", option, text));
  return *duration;
}

Workload log_workload_of(const SimulateArguments& arguments, simulate::Tiling tiling) {
  std::vector<runlog::Log> logs;
  check(runlog::read_logs(arguments.logs, logs));
  tiling.ranks = arguments.ranks;
  tiling.ppn = arguments.ppn;
  Workload workload;
  const std::string command = logs.front().header.command;
  check(simulate::log_workload(std::move(logs), tiling, workload));
  workload.command = command;
  workload.log = fmt::format("{}", fmt::join(arguments.logs, " "));
  return workload;
}

namespace {

RetentionKind retention_of(const Choice& choice) {
  Options options;
  if (const auto chosen = choice.find("retention"); chosen != choice.end())
    check(set_option(options, "retention", chosen->second));
  return options.retention;
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

SimulateRow row_of(const SimulateArguments& arguments, const Workload& workload, const Choice& choice) {
  Options options;
  const RowExtension* const more = arguments.extension;
  for (const auto& [option, value] : choice)
    if (option != "nic" && option != "predictor" && !(more && more->has(option)))
      check(set_option(options, option, value));
  if (more) more->set(options, choice);
  (void)set_option(options, "predictor", choice.at("predictor"));  // some are for simulations alone
  const int ranks_of_node = std::max(1, workload.placement.ranks() / std::max(1, workload.placement.nodes()));
  const ProcessMemory memory =
      process_memory(workload.limit_bytes, recorded_options(workload.options), ranks_of_node);
  SimulateRow row{&workload, options, simulated(options, memory), choice, &arguments.dimensions, {},
                  0,         false};
  Settings& settings = row.settings;
  settings.predictor = row.value("predictor");
  if (!simulate::is_predictor(settings.predictor)) {
    Options ignored;
    Error error = set_option(ignored, "predictor", settings.predictor);
    throw UsageError(fmt::format("{}, oracle, schedule", error.message));
  }
  settings.nic = nic_of(row.value("nic"), workload);
  settings.cores = arguments.cores ? arguments.cores : workload.cores;
  if (more) more->set(settings, choice);
  return row;
}

/// A row for each combination of the values from dimension `at` on.
void add_rows(std::vector<SimulateRow>& rows, const SimulateArguments& arguments, const Workload& workload,
              Choice choice, std::size_t at) {
  if (at == arguments.dimensions.size()) {
    rows.push_back(row_of(arguments, workload, choice));
    return;
  }
  const Dimension& dimension = arguments.dimensions[at];
  for (const std::string& value : dimension.values) {
    choice[dimension.option] = value;
    add_rows(rows, arguments, workload, choice, at + 1);
    if (!dimension.matters(retention_of(choice))) break;
  }
}

/// The noises that disturb computations.
std::string noise_of(const SimulateRow& row) {
  const auto given = row.choice.find("noise");
  return given == row.choice.end() ? "none" : given->second;
}

}  // namespace

void add_rows(std::vector<SimulateRow>& rows, const SimulateArguments& arguments, const Workload& workload) {
  const std::size_t first = rows.size();
  add_rows(rows, arguments, workload, {}, 0);
  const auto nics = std::find_if(arguments.dimensions.begin(), arguments.dimensions.end(),
                                 [](const Dimension& of) { return of.option == "nic"; });
  for (std::size_t i = first; i < rows.size(); ++i) rows[i].names_nic = nics->values.size() > 1;
}

void simulate_row(SimulateRow& row) {
  const std::clock_t begin = std::clock();
  row.result = simulate::simulate(*row.workload, row.settings);
  row.cpu_seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void bound_oracles(std::vector<SimulateRow>& rows) {
  for (const SimulateRow& on_demand : rows) {
    if (on_demand.settings.retention != RetentionKind::on_demand || on_demand.settings.limit != 0 ||
        on_demand.settings.node_limit != 0)
      continue;
    for (SimulateRow& row : rows)
      if (row.workload == on_demand.workload && noise_of(row) == noise_of(on_demand) &&
          row.nic() == on_demand.nic())
        bound_oracle(row.result.registered, on_demand.result);
  }
}

}  // namespace pinion::cli
