#include "cli/simulate/strategies.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/machine_memory.h"
#include "cli/command.h"
#include "cli/error_line.h"
#include "cli/progress.h"
#include "cli/text.h"
#include "device/model/cost_model.h"

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

constexpr const char* kRecordedNic = "recorded";
constexpr int kGridSeconds = 10;

std::vector<std::string> table_header(const char* first) {
  return {first, "registered peak / mean", "seconds added", "misses", "bounced"};
}

void add_row(Table& table, const std::string& name, const simulate::Result& result) {
  const double share = result.seconds > 0 ? result.cost.added() / result.seconds : 0;
  table.add({name, pair_text(static_cast<double>(result.registered.peak), result.registered.mean),
             fmt::format("{} ({})", seconds_text(result.cost.added()), percent_text(share)),
             count_text(result.acquires.misses), count_text(result.acquires.bounced)});
}

/// Whether another simulation, about as long as the longest so far, ends within so many seconds of
/// processor time.
class Allowance {
 public:
  explicit Allowance(int seconds) : seconds_(seconds) {}

  bool allows() {
    const std::clock_t now = std::clock();
    longest_ = std::max(longest_, now - last_);
    last_ = now;
    return now - start_ + longest_ < seconds_ * CLOCKS_PER_SEC;
  }

 private:
  int seconds_;
  std::clock_t start_ = std::clock(), last_ = start_, longest_ = 0;
};

/// Limits between the most that a process's transfers need at one time and the most that it ever used.
std::vector<std::string> limits_to_try(const runlog::Report& report) {
  std::uint64_t least = 0, most = 0;
  for (const runlog::RankReport& rank : report.per_rank) {
    least = std::max(least, rank.registered.oracle_peak);
    most = std::max(most, rank.registered.leave_pinned_peak);
  }
  std::vector<std::string> limits;
  if (least == 0 || least >= most) return limits;
  for (const std::uint64_t parts : {0, 1, 2, 4}) {  // of eight
    const std::uint64_t limit = least + (most - least) * parts / 8;
    const std::uint64_t unit = limit >= (8 << 20) ? 1 << 20 : 64 << 10;
    const std::string text = format_size((limit + unit - 1) / unit * unit);
    if (limits.empty() || limits.back() != text) limits.push_back(text);
  }
  return limits;
}

class Simulator {
 public:
  Simulator(const runlog::Report& report, const std::vector<std::string>& logs) : report_(report) {
    options_ = recorded_options(report.options);
    if (const Error error = simulate::log_workload(part_of(logs, strategies_.of_ranks), {}, workload_))
      throw Failure(error.message);
    nic_ = find_nic();
    strategies_.nic = nic_ ? nic_->name : kRecordedNic;
    strategies_.ranks = static_cast<int>(workload_.ranks.size());
    strategies_.covers_seconds = workload_.covers_seconds;
  }

  Strategies run() {
    Progress progress("pinion: simulating from the log");
    std::vector<RetentionKind> kinds = {RetentionKind::on_demand, RetentionKind::leave_pinned,
                                        RetentionKind::helper};
    if (options_.retention == RetentionKind::lru) kinds.push_back(RetentionKind::lru);
    for (const RetentionKind kind : kinds) {
      progress.step(fmt::format("strategy {}", to_string(kind)));
      strategies_.rows.push_back({to_string(kind), simulate({{"retention", to_string(kind)}})});
    }
    progress.step("other limits and time budgets");
    for (const std::string& limit : limits_to_try(report_)) try_helper("limit", limit);
    if (options_.time_budget > 0) try_helper("time-budget", format_share(4 * options_.time_budget));
    return std::move(strategies_);
  }

  WhatIfGrid grid() {
    allowance_ = Allowance(kGridSeconds);
    add_line("helper", {{"retention", "helper"}});
    add_line("leave-pinned", {{"retention", "leave-pinned"}});
    add_line("on-demand", {{"retention", "on-demand"}});
    for (const std::string& budget : budgets_to_try())
      add_line("helper, time budget " + budget, {{"retention", "helper"}, {"time-budget", budget}});
    return std::move(grid_);
  }

 private:
  /// A run without calls has none to learn their cost from.
  std::optional<CostModel> find_nic() const {
    if (report_.acts != runlog::Acts::measured) return std::nullopt;
    // A model that was a file there may be missing here.
    CostModelResult nic = load_cost_model(options_.nic);
    if (nic.error) nic = load_cost_model(Options{}.nic);
    return nic.model;
  }

  using Changes = std::vector<std::pair<const char*, std::string>>;

  std::vector<std::string> budgets_to_try() const {
    if (options_.time_budget <= 0) return {format_share(Options().time_budget)};
    return {format_share(4 * options_.time_budget), "off"};
  }

  void add_line(std::string name, const Changes& changes) {
    std::vector<std::string> limits = limits_to_try(report_);
    limits.push_back("0");
    WhatIfGrid::Line line{std::move(name), {}};
    for (const std::string& limit : limits) {
      if (!allowance_.allows()) {
        grid_.is_whole = false;
        continue;
      }
      Changes with_limit = changes;
      with_limit.emplace_back("limit", limit);
      line.points.push_back({*parse_size(limit), simulate(with_limit)});
    }
    if (!line.points.empty()) grid_.lines.push_back(std::move(line));
  }

  simulate::Result simulate(const Changes& changes) {
    Options options = options_;
    for (const auto& [name, value] : changes)
      if (const Error error = set_option(options, name, value)) throw Failure(error.message);
    simulate::Settings settings = simulated(options);
    settings.cores = workload_.cores;
    settings.nic = nic_;
    return simulate::simulate(workload_, settings);
  }

  void try_helper(const char* option, const std::string& value) {
    if (!allowance_.allows()) return;
    strategies_.what_if.push_back(
        {option, value, simulate({{"retention", to_string(RetentionKind::helper)}, {option, value}})});
  }

  const runlog::Report& report_;
  Options options_;
  std::optional<CostModel> nic_;  ///< empty: the run's own calls
  simulate::Workload workload_;
  Strategies strategies_;
  WhatIfGrid grid_;
  Allowance allowance_{2};
};

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
  settings.minimum_gain = {options.minimum_gain, machine_memory()};
  settings.minimize_peak = options.minimize == Minimize::peak;
  settings.policy = options.policy;
  settings.policy_every = options.policy_every;
  settings.poll = options.poll;
  return settings;
}

std::optional<Strategies> strategies_of(const runlog::Report& report, const std::vector<std::string>& logs) {
  if (report.acquires.total == 0 || !report.call_sites_known()) return std::nullopt;
  try {
    return Simulator(report, logs).run();
  } catch (const std::exception& failed) {
    print_error_line(fmt::format("nothing is simulated: {}", failed.what()));
    return std::nullopt;
  }
}

WhatIfGrid what_if_grid(const runlog::Report& report, const std::vector<std::string>& logs) {
  return Simulator(report, logs).grid();
}

const simulate::Result* row_of(const Strategies* strategies, RetentionKind kind) {
  if (strategies == nullptr) return nullptr;
  for (const Strategies::Row& row : strategies->rows)
    if (row.retention == to_string(kind)) return &row.result;
  return nullptr;
}

std::string strategies_title(const Strategies& strategies) {
  std::string part;
  if (strategies.ranks < strategies.of_ranks)
    part = fmt::format(", of {} of {} ranks", strategies.ranks, strategies.of_ranks);
  if (strategies.covers_seconds > 0)
    part += fmt::format(", of the first {}", seconds_text(strategies.covers_seconds));
  return fmt::format("simulated from this run's log, {}{}",
                     strategies.nic == kRecordedNic ? "its own registration times"
                                                    : fmt::format("NIC model '{}'", strategies.nic),
                     part);
}

Table strategies_table(const Strategies& strategies) {
  Table table(table_header("strategy"));
  for (const auto& [retention, result] : strategies.rows) add_row(table, retention, result);
  return table;
}

Table what_if_table(const Strategies& strategies) {
  Table table(table_header("helper with"));
  for (const auto& [option, value, result] : strategies.what_if)
    add_row(table, fmt::format("--{} {}", option, value), result);
  return table;
}

Table grid_table(const WhatIfGrid& grid) {
  Table table(table_header("strategy"));
  for (const WhatIfGrid::Line& line : grid.lines)
    for (const auto& [limit, result] : line.points)
      add_row(table, limit ? fmt::format("{}, limit {}", line.name, format_size(limit)) : line.name, result);
  return table;
}

std::string strategies_text(const Strategies& strategies, const std::string& indent) {
  return fmt::format("{}{}:\n", indent, strategies_title(strategies)) +
         strategies_table(strategies).text(indent);
}

std::string what_if_text(const Strategies& strategies, const std::string& indent) {
  return strategies.what_if.empty() ? std::string() : what_if_table(strategies).text(indent);
}

Json to_json(const Strategies& strategies) {
  const auto row = [](Json json, const simulate::Result& result) {
    json["seconds"] = result.seconds;
    json["seconds_added"] = result.cost.added();
    json["registered_bytes"] = to_json(result.registered);
    json["acquires"] = to_json(result.acquires);
    return json;
  };
  Json rows = Json::array(), what_if = Json::array();
  for (const auto& [retention, result] : strategies.rows)
    rows.push_back(row({{"retention", retention}}, result));
  for (const auto& [option, value, result] : strategies.what_if)
    what_if.push_back(row({{"option", option}, {"value", value}}, result));
  return {{"simulated", true},
          {"nic", strategies.nic},
          {"ranks", strategies.ranks},
          {"of_ranks", strategies.of_ranks},
          {"covers_seconds", strategies.covers_seconds > 0 ? Json(strategies.covers_seconds) : Json(nullptr)},
          {"rows", std::move(rows)},
          {"what_if", std::move(what_if)}};
}

}  // namespace pinion::cli
