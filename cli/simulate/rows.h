// The rows of `pinion simulate`: the options that make them, what each row runs, and its result.
// Single-threaded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/report/report_json.h"
#include "lease/engine_options.h"
#include "retention/retention_options.h"
#include "simulate/simulation.h"

namespace pinion::cli {

/// The options that take a list.
struct RowValues {
  std::vector<std::string> retentions{"on-demand", "leave-pinned", "helper"};
  std::vector<std::string> predictors{Options{}.predictor};
  std::vector<std::string> limits{"0"}, node_limits{"0"};
  std::vector<std::string> noises{"none"};
  std::vector<std::string> budgets{format_share(Options().time_budget)};
  std::vector<std::string> minimum_gains{"0"}, hugepages{"off"}, polls{"1ms"};
  std::vector<std::string> windows{"2"}, lru_sizes{"64M"}, nics{""};  ///< no NIC: the recorded one
};

/// The options of ranks, nodes and cores.
struct MachineArguments {
  std::string wake_latency, skew, placement = "packed";
  std::string policy = "sleeping", policy_every = "100", time_slice = "4ms";
  int ranks = 0, ppn = 0, cores = 0;
  double gflops = 1, bandwidth = 1.5;
  bool intranode = false;
};

/// The options of the command.
struct SimulateArguments {
  std::vector<std::string> logs, patterns;
  RowValues values;
  MachineArguments machine;
  std::string period_window = "4", study, profile;
  std::uint64_t iterations = 0, seed = 1;
  bool json = false;
};

/// An option that takes a list: a row for each combination of values.
struct Dimension {
  const char* option;
  std::vector<std::string> RowValues::*values;
  /// Under other strategies the first value stands for all.
  bool (*matters)(RetentionKind);
  const char* label;  ///< in tables; null: it has a form of its own
};
/// All of them, in the order in which rows change.
const std::vector<Dimension>& dimensions();

/// The values of a row, by option.
using Choice = std::map<std::string, std::string>;

struct SimulateRow {
  const simulate::Workload* workload;
  Options options;  ///< of a run like it
  simulate::Settings settings;
  Choice choice;
  simulate::Result result;
  double cpu_seconds;
  bool names_nic;  ///< other rows have another one

  const std::string& value(const char* option) const { return choice.at(option); }
  std::string nic() const { return settings.nic ? settings.nic->name : "recorded"; }
  bool acts() const { return traits_of(settings.retention).acts; }
  bool predicts() const { return traits_of(settings.retention).predicts; }
};

inline void check(const Error& error) {
  if (error) throw UsageError(error.message);
}

std::vector<simulate::Workload> workloads_of(const SimulateArguments& arguments);
/// Adds the rows of one workload: one for each combination of the values given. Results are still empty.
void add_rows(std::vector<SimulateRow>& rows, const SimulateArguments& arguments,
              const simulate::Workload& workload);

Json to_json(const SimulateRow& row);
/// The subject of a row: its strategy, and the values that differ from the defaults.
std::string strategy_text(const SimulateRow& row);
/// Tables, with those of a study or of a user's own rows.
std::string rows_text(const std::vector<SimulateRow>& rows, bool study);

}  // namespace pinion::cli
