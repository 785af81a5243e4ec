// The rows of a simulation: the options that make them, what each row runs, and its result. `pinion simulate`
// makes them of logs; papers/ adds patterns, and options of its own. Single-threaded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/report/report_json.h"
#include "cli/report/verdict.h"
#include "lease/engine_options.h"
#include "retention/retention_options.h"
#include "simulate/simulation.h"

namespace pinion::cli {

/// An option that takes a list: a row for each combination of values.
struct Dimension {
  std::string option, text;
  std::vector<std::string> values;  ///< at first the default
  /// Under other strategies the first value stands for all.
  bool (*matters)(RetentionKind);
  const char* label;  ///< in tables; null: it has a form of its own
  std::string standard = values.front();
};
bool always(RetentionKind kind);
bool where_predicted(RetentionKind kind);
bool where_acting(RetentionKind kind);
/// The lists of `pinion simulate`, in the order in which rows change.
std::vector<Dimension> log_dimensions();

/// The values of a row, by option.
using Choice = std::map<std::string, std::string>;

/// Sets what options of its own mean to a row.
class RowExtension {
 public:
  virtual ~RowExtension() = default;
  /// Returns whether the option is its own. The others are those of a run.
  virtual bool has(const std::string& option) const = 0;
  virtual void set(Options& options, const Choice& choice) const = 0;
  virtual void set(simulate::Settings& settings, const Choice& choice) const = 0;
};

/// The options of the command.
struct SimulateArguments {
  std::vector<std::string> logs;
  std::vector<Dimension> dimensions = log_dimensions();
  int ranks = 0, ppn = 0, cores = 0;
  bool json = false;
  const RowExtension* extension = nullptr;

  Dimension& dimension(const std::string& option);
};

struct SimulateRow {
  const simulate::Workload* workload;
  Options options;  ///< of a run like it
  simulate::Settings settings;
  Choice choice;
  const std::vector<Dimension>* dimensions;
  simulate::Result result;
  double cpu_seconds;
  bool names_nic;  ///< other rows have another one

  const std::string& value(const std::string& option) const { return choice.at(option); }
  std::string nic() const { return settings.nic ? settings.nic->name : "recorded"; }
  bool acts() const { return traits_of(settings.retention).acts; }
  bool predicts() const { return traits_of(settings.retention).predicts; }
};

inline void check(const Error& error) {
  if (error) throw UsageError(error.message);
}

/// Adds the options of logs, dimensions and machine. `arguments` stays where it is from then on.
void add_rows_options(CLI::App& sub, SimulateArguments& arguments);

/// The value of an option; else a usage error.
Duration duration_of(const char* option, const std::string& text);

/// `tiling`: its ranks and ppn are those of the arguments.
simulate::Workload log_workload_of(const SimulateArguments& arguments, simulate::Tiling tiling = {});
/// Adds the rows of one workload: one for each combination of the values given. Results are still empty.
/// `arguments` outlives them.
void add_rows(std::vector<SimulateRow>& rows, const SimulateArguments& arguments,
              const simulate::Workload& workload);
void simulate_row(SimulateRow& row);
/// Lets oracles hold no more than on-demand, which is possible, of the same workload, noise and NIC.
void bound_oracles(std::vector<SimulateRow>& rows);

/// The advice that the rows lead to; simulates the ways that they lack, two seconds at most.
Verdict verdict_of(const std::vector<SimulateRow>& rows);

Json to_json(const SimulateRow& row);
/// The subject of a row: its strategy, and the values that differ from the defaults.
std::string strategy_text(const SimulateRow& row);
/// Seconds added, and their share of the run.
std::string added_text(const simulate::Result& result);
using TablesText = std::string (*)(const std::vector<SimulateRow>& rows);
std::string tables_text(const std::vector<SimulateRow>& rows);
/// Of each workload a heading and its tables; then their meaning, which begins with `meaning`.
std::string rows_text(const std::vector<SimulateRow>& rows, TablesText tables = tables_text,
                      const char* meaning = "Registered and oracle: peak / mean; leave-pinned: its peak. ");
/// Prints the rows and the advice as `text` or, with `json`, as an object.
void print_rows(const std::vector<SimulateRow>& rows, const Verdict& verdict, bool json,
                const std::string& text);

}  // namespace pinion::cli
