#include "strategies.h"

#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "device/cost_model.h"
#include "text.h"

namespace pinion::cli {

namespace {

/// Leases of all ranks that are simulated: a second or two of work.
constexpr std::size_t kMostEvents = 100'000;

/// Whole ranks, in their order, as far as they fit; of the first one its beginning, if need be.
std::vector<runlog::Log> part_of(const std::vector<std::string>& paths, int& ranks) {
  std::vector<runlog::Log> logs;
  std::size_t events = 0;
  const Error error = runlog::for_each_log(paths, [&](runlog::Log&& log) {
    ++ranks;
    if (logs.empty() && log.events.size() > kMostEvents) {
      log.live.counters.events_dropped += log.events.size() - kMostEvents;
      log.events.resize(kMostEvents);
    }
    if (events + log.events.size() > kMostEvents) return;
    events += log.events.size();
    logs.push_back(std::move(log));
  });
  if (error) throw Failure(error.message);
  return logs;
}

Strategies simulate_strategies(const std::vector<std::string>& logs, const std::string& options) {
  Options of_run;
  static_cast<void>(parse_options(of_run, options));
  simulate::Settings settings = simulated(of_run);
  // A measured run has no calls to learn their cost from. A model that was a file there may be missing here.
  CostModelResult nic = load_cost_model(of_run.nic);
  if (nic.error) nic = load_cost_model(Options{}.nic);
  settings.nic = nic.model;

  Strategies strategies;
  strategies.nic = nic.model.name;
  simulate::Workload workload;
  if (const Error error = simulate::log_workload(part_of(logs, strategies.of_ranks), {}, workload))
    throw Failure(error.message);
  settings.cores = workload.cores;
  strategies.ranks = static_cast<int>(workload.ranks.size());
  strategies.covers_seconds = workload.covers_seconds;
  std::vector<RetentionKind> kinds = {RetentionKind::on_demand, RetentionKind::leave_pinned,
                                      RetentionKind::helper};
  if (of_run.retention == RetentionKind::lru) kinds.push_back(RetentionKind::lru);
  for (const RetentionKind kind : kinds) {
    settings.retention = kind;
    strategies.rows.push_back({to_string(kind), simulate::simulate(workload, settings)});
  }
  return strategies;
}

}  // namespace

simulate::Settings simulated(const Options& options) {
  simulate::Settings settings;
  settings.retention = options.retention;
  settings.predictor = options.predictor;
  settings.window = static_cast<unsigned>(options.window);
  settings.period_window = static_cast<unsigned>(options.period_window);
  settings.limit = options.limit;
  settings.node_limit = options.node_limit;
  settings.lru_bytes = options.lru_size;
  settings.time_budget = {options.time_budget, options.start_credit};
  settings.helper_share = options.helper_share;
  settings.minimize_peak = options.minimize == Minimize::peak;
  settings.policy = options.policy;
  settings.policy_every = options.policy_every;
  settings.poll = options.poll;
  return settings;
}

std::optional<Strategies> strategies_of(const runlog::Report& report, const std::vector<std::string>& logs) {
  if (report.acts != runlog::Acts::measured || report.acquires.total == 0) return std::nullopt;
  try {
    return simulate_strategies(logs, report.options);
  } catch (const std::exception& failed) {
    fmt::print(stderr, "pinion: nothing is simulated: {}\n", failed.what());
    return std::nullopt;
  }
}

std::string strategies_text(const Strategies& strategies, const std::string& indent) {
  std::string part;
  if (strategies.ranks < strategies.of_ranks)
    part = fmt::format(", of {} of {} ranks", strategies.ranks, strategies.of_ranks);
  if (strategies.covers_seconds > 0)
    part += fmt::format(", of the first {}", seconds_text(strategies.covers_seconds));
  std::string out =
      fmt::format("{}simulated from this run's log, NIC model '{}'{}:\n", indent, strategies.nic, part);
  Table table({"strategy", "registered peak / mean", "seconds added", "misses", "bounced"});
  for (const auto& [retention, result] : strategies.rows) {
    const double share = result.seconds > 0 ? result.cost.added() / result.seconds : 0;
    table.add({retention, pair_text(static_cast<double>(result.registered.peak), result.registered.mean),
               fmt::format("{} ({})", seconds_text(result.cost.added()), percent_text(share)),
               count_text(result.acquires.misses), count_text(result.acquires.bounced)});
  }
  const std::string rows = table.text();
  for (std::size_t begin = 0; begin < rows.size();) {
    const std::size_t end = rows.find('\n', begin);
    out += indent + rows.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

Json to_json(const Strategies& strategies) {
  Json rows = Json::array();
  for (const auto& [retention, result] : strategies.rows)
    rows.push_back({{"retention", retention},
                    {"seconds", result.seconds},
                    {"seconds_added", result.cost.added()},
                    {"registered_bytes", to_json(result.registered)},
                    {"acquires", to_json(result.acquires)}});
  return {{"simulated", true},
          {"nic", strategies.nic},
          {"ranks", strategies.ranks},
          {"of_ranks", strategies.of_ranks},
          {"covers_seconds", strategies.covers_seconds > 0 ? Json(strategies.covers_seconds) : Json(nullptr)},
          {"rows", std::move(rows)}};
}

}  // namespace pinion::cli
