#include "cli/simulate/paper_parts.h"

#include "cli/command.h"
#include "device/model/cost_model.h"

namespace pinion::cli {

using simulate::Settings;
using simulate::Workload;

Workload paper_workload(const std::string& name, simulate::Placement placement,
                        const simulate::Machine& machine) {
  simulate::Pattern pattern;
  if (const Error error = simulate::find_pattern(name, pattern)) throw Failure(error.message);
  return simulate::pattern_workload(pattern, 0, std::move(placement), machine);
}

Workload paper_workload(const std::string& name, int ppn, const std::string& where) {
  simulate::Pattern pattern;
  simulate::Placement placement;
  Error error = simulate::find_pattern(name, pattern);
  if (!error) error = simulate::Placement::make(pattern.ranks, ppn, where, placement);
  if (error) throw Failure(error.message);
  return paper_workload(name, std::move(placement));
}

Settings paper_settings(RetentionKind retention) {
  Settings settings;
  settings.retention = retention;
  settings.predictor = "shortest";
  settings.time_budget.share = TimeBudget::kUnbounded;
  settings.nic = load_cost_model("connectx").model;
  settings.cores = 8;
  settings.poll = 0;
  settings.wake_latency = 0;
  return settings;
}

simulate::Result under(RetentionKind retention, const Workload& workload, std::uint64_t limit) {
  Settings settings = paper_settings(retention);
  settings.limit = limit;
  return simulate::simulate(workload, settings);
}

}  // namespace pinion::cli
