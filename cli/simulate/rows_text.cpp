#include <fmt/format.h>

#include <algorithm>

#include "cli/report/report_tables.h"
#include "cli/simulate/rows.h"
#include "cli/text.h"

namespace pinion::cli {

using simulate::Result;
using simulate::Workload;

Json to_json(const SimulateRow& row) {
  const Result& r = row.result;
  Json budget, helper_share;
  if (row.acts()) {
    helper_share = helper_share_json(r.budget);
    budget = to_json(r.budget);
    budget["option"] = row.value("time-budget");
  }
  Json options = Json::object();
  for (const Dimension& dimension : *row.dimensions)
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
          {"noise", row.choice.contains("noise") ? row.value("noise") : "none"},
          {"nic", row.nic()},
          {"ranks", r.ranks},
          {"ranks_simulated", r.ranks_simulated},
          {"nodes", r.nodes},
          {"nodes_simulated", r.nodes_simulated},
          {"seconds", r.seconds},
          {"seconds_at_end", r.seconds_at_end},
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

std::string strategy_text(const SimulateRow& row) {
  std::string strategy = to_string(row.settings.retention);
  if (row.predicts()) strategy += " (" + row.settings.predictor + ")";
  if (row.names_nic) strategy += ", NIC " + row.nic();
  if (row.acts() && row.settings.policy != PolicyKind::sleeping)
    strategy += fmt::format(", {}", to_string(row.settings.policy));
  for (const Dimension& dimension : *row.dimensions) {
    const std::string& value = row.value(dimension.option);
    if (dimension.label && dimension.matters(row.settings.retention) && value != dimension.standard)
      strategy += fmt::format(", {} {}", dimension.label, value);
  }
  return strategy;
}

std::string added_text(const Result& r) {
  return fmt::format("{} ({})", seconds_text(r.cost.added()),
                     percent_text(r.seconds > 0 ? r.cost.added() / r.seconds : 0));
}

std::string tables_text(const std::vector<SimulateRow>& rows) {
  Table memory({"strategy", "run time", "registered", "oracle", "leave-pinned"});
  Table time({"strategy", "seconds added", "of the time budget", "misses / late / bounced"});
  for (const SimulateRow& row : rows) {
    const Result& r = row.result;
    const runlog::RegisteredBytes& b = r.registered;
    memory.add({strategy_text(row), seconds_text(r.seconds), pair_text(static_cast<double>(b.peak), b.mean),
                pair_text(static_cast<double>(b.oracle_peak), b.oracle_mean),
                bytes_text(static_cast<double>(b.leave_pinned_peak))});
    time.add({strategy_text(row), added_text(r), row.acts() ? spent_text(r.budget) : "-",
              fmt::format("{} / {} / {}", count_text(r.acquires.misses), count_text(r.acquires.late),
                          count_text(r.acquires.bounced))});
  }
  return memory.text() + "\n" + time.text();
}

std::string rows_text(const std::vector<SimulateRow>& rows, TablesText tables, const char* meaning) {
  std::string out;
  for (std::size_t i = 0; i < rows.size();) {
    const Workload* workload = rows[i].workload;
    std::vector<SimulateRow> of;
    while (i < rows.size() && rows[i].workload == workload) of.push_back(rows[i++]);
    const Result& r = of.front().result;
    out += fmt::format("{}: {} on {}{}", workload->log.empty() ? workload->pattern : workload->log,
                       plural_text(static_cast<std::uint64_t>(r.ranks), "rank", "ranks"),
                       plural_text(static_cast<std::uint64_t>(r.nodes), "node", "nodes"),
                       of.front().names_nic ? "" : ", NIC " + of.front().nic());
    if (r.ranks_simulated < r.ranks)
      out += fmt::format("; {} simulated, the others do the same as one of them", r.ranks_simulated);
    out += "\n" + tables(of);
    if (workload->covers_seconds > 0)
      out += fmt::format("The log lost events: this is of its first {}.\n",
                         seconds_text(workload->covers_seconds));
  }
  return out + "\n" +
         wrapped(std::string(meaning) +
                     "Simulated: times come from the NIC's cost model and the program's own times; "
                     "registered bytes are "
                     "of the node with the highest peak, sum over its ranks. Seconds added: the time that "
                     "registration "
                     "costs beyond leave-pinned's.",
                 "");
}

}  // namespace pinion::cli
