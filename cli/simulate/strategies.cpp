#include "cli/simulate/strategies.h"

#include <fmt/format.h>

#include <algorithm>

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

void add_row(Table& table, const std::string& name, const runlog::RegisteredBytes& bytes, double added,
             double seconds, const runlog::Acquires& acquires) {
  table.add({name, pair_text(static_cast<double>(bytes.peak), bytes.mean),
             fmt::format("{} ({})", seconds_text(added), percent_text(seconds > 0 ? added / seconds : 0)),
             count_text(acquires.misses), count_text(acquires.bounced)});
}

void add_row(Table& table, const std::string& name, const simulate::Result& result) {
  add_row(table, name, result.registered, result.cost.added(), result.seconds, result.acquires);
}

/// Limits between the most that a process's transfers need at one time and the most that it ever used.
std::vector<std::string> limits_between(std::uint64_t least, std::uint64_t most) {
  std::vector<std::string> limits;
  if (least == 0 || least >= most) return limits;
  for (const std::uint64_t parts : {0, 1, 2, 4}) {  // of eight
    const std::uint64_t limit = least + (most - least) / 8 * parts;
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
    for (const RetentionKind kind :
         {RetentionKind::on_demand, RetentionKind::leave_pinned, RetentionKind::lru, RetentionKind::helper}) {
      progress.step(fmt::format("strategy {}", to_string(kind)));
      strategies_.rows.push_back({to_string(kind), simulate({{"retention", to_string(kind)}})});
    }
    progress.step("other limits and time budgets");
    if (options_.limit != 0)
      for (const RetentionKind kind : {RetentionKind::leave_pinned, RetentionKind::helper})
        try_way({kind, "limit", "0"});
    const Needs needs = needs_of(report_);
    for (const WayChange& change : ways_to_try(needs.least, needs.most)) try_way(change);
    if (options_.time_budget > 0)
      try_way({RetentionKind::helper, "time-budget", format_share(larger_budget())});
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

  double larger_budget() const { return std::min(4 * options_.time_budget, 1.); }
  std::vector<std::string> budgets_to_try() const {
    if (options_.time_budget <= 0) return {format_share(Options().time_budget)};
    return {format_share(larger_budget()), "off"};
  }

  void add_line(std::string name, const Changes& changes) {
    const Needs needs = needs_of(report_);
    std::vector<std::string> limits = limits_between(needs.least, needs.most);
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
    simulate::Settings settings = simulated(options, process_memory(report_, options_));
    settings.cores = workload_.cores;
    settings.nic = nic_;
    settings.keep_timeline = nic_ && settings.retention == RetentionKind::helper && changes.size() == 1;
    return simulate::simulate(workload_, settings);
  }

  void try_way(const WayChange& change) {
    if (!allowance_.allows()) return;
    const std::string retention = to_string(change.retention);
    strategies_.what_if.push_back(
        {retention, change.option, change.value,
         simulate({{"retention", retention}, {change.option.c_str(), change.value}})});
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

Needs needs_of(const runlog::Report& report) {
  Needs needs;
  for (const runlog::RankReport& rank : report.per_rank) {
    needs.least = std::max(needs.least, rank.registered.oracle_peak);
    needs.most = std::max(needs.most, rank.registered.leave_pinned_peak);
  }
  return needs;
}

int ranks_of_node(const simulate::Result& result) {
  return std::max(1, result.ranks / std::max(1, result.nodes));
}

bool Allowance::allows() {
  const std::clock_t now = std::clock();
  longest_ = std::max(longest_, now - last_);
  last_ = now;
  return now - start_ + longest_ < seconds_ * CLOCKS_PER_SEC;
}

WayFigures figures_of(const simulate::Result& result) {
  return {static_cast<double>(result.registered.peak), result.registered.mean, result.cost.added(),
          result.acquires.bounced};
}

std::vector<WayChange> ways_to_try(std::uint64_t least, std::uint64_t most) {
  std::vector<WayChange> ways;
  const std::vector<std::string> limits = limits_between(least, most);
  for (const std::string& limit : limits) {
    ways.push_back({RetentionKind::leave_pinned, "limit", limit});
    ways.push_back({RetentionKind::helper, "limit", limit});
  }
  for (const std::string& limit : limits) ways.push_back({RetentionKind::lru, "lru-size", limit});
  for (const std::string& limit : limits) ways.push_back({RetentionKind::on_demand, "limit", limit});
  return ways;
}

std::vector<Way> ways_of(const Strategies& strategies, const Options& options) {
  std::vector<Way> ways;
  const auto add = [&](const std::string& retention, const simulate::Result& result) -> Options& {
    ways.push_back({options, &result});
    (void)set_option(ways.back().options, "retention", retention);
    return ways.back().options;
  };
  for (const Strategies::Row& row : strategies.rows) add(row.retention, row.result);
  for (const Strategies::WhatIf& row : strategies.what_if)
    (void)set_option(add(row.retention, row.result), row.option, row.value);
  return ways;
}

ProcessMemory process_memory(std::uint64_t recorded_limit, const Options& options, int ranks_of_node) {
  if (recorded_limit != 0 && options.limit == 0 && options.node_limit == 0) return {recorded_limit, false};
  return {machine_memory() / 2 / static_cast<std::uint64_t>(std::max(1, ranks_of_node)),
          true};  // find_limits()
}

ProcessMemory process_memory(const runlog::Report& report, const Options& options) {
  return process_memory(report.limit_bytes, options, static_cast<int>(report.nodes.front().ranks));
}

simulate::Settings simulated(const Options& options, const ProcessMemory& memory) {
  simulate::Settings settings;
  settings.retention = options.retention;
  settings.predictor = options.predictor;
  settings.window = static_cast<unsigned>(options.window);
  settings.period_window = static_cast<unsigned>(options.period_window);
  settings.limit = options.limit;
  settings.node_limit = options.node_limit;
  settings.lru_bytes = options.lru_size;
  settings.time_budget = options.time_budget;
  settings.minimum_gain = {options.minimum_gain, memory.bytes};
  settings.hugepages = options.hugepages;
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

void bound_oracle(runlog::RegisteredBytes& bytes, const simulate::Result& on_demand) {
  if (on_demand.acquires.bounced != 0) return;
  bytes.oracle_peak = std::min(bytes.oracle_peak, on_demand.registered.peak);
  bytes.oracle_mean = std::min(bytes.oracle_mean, on_demand.registered.mean);
}

void reconcile(runlog::Report& report, Strategies& strategies) {
  runlog::RegisteredBytes& of_run = report.nodes.front().registered;
  if (strategies.ranks < strategies.of_ranks || strategies.covers_seconds > 0 || !of_run.bounds_known) return;
  const Options options = recorded_options(report.options);
  if (const auto* on_demand = row_of(&strategies, RetentionKind::on_demand)) bound_oracle(of_run, *on_demand);
  for (Strategies::Row& row : strategies.rows) {
    if (row.retention != to_string(RetentionKind::leave_pinned) || row.result.acquires.bounced != 0 ||
        options.limit != 0 || options.node_limit != 0)
      continue;
    row.result.registered = of_run;
    row.result.registered.peak = of_run.leave_pinned_peak;
    row.result.registered.mean = of_run.leave_pinned_mean;
  }
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

Table strategies_table(const Strategies& strategies, const runlog::Report& report) {
  Table table(table_header("strategy"));
  for (const auto& [retention, result] : strategies.rows) {
    const bool is_own = report.acts != runlog::Acts::measured && retention == report.retention;
    if (is_own)
      add_row(table, retention + " (this run)", report.registered(), report.cost.added(), report.wall_seconds,
              report.acquires);
    else
      add_row(table, retention, result);
  }
  return table;
}

const char* const kWhatIfMeaning = "Other limits and budgets, those that no row beats:";

Table what_if_table(const Strategies& strategies) {
  std::vector<WayFigures> figures;
  for (const Strategies::Row& row : strategies.rows) figures.push_back(figures_of(row.result));
  for (const Strategies::WhatIf& row : strategies.what_if) figures.push_back(figures_of(row.result));
  Table table(table_header("with"));
  for (const std::size_t i : unbeaten(figures)) {
    const auto row_of = figures.begin() + static_cast<std::ptrdiff_t>(i);
    if (i < strategies.rows.size() || std::find(figures.begin(), row_of, *row_of) != row_of) continue;
    const Strategies::WhatIf& row = strategies.what_if[i - strategies.rows.size()];
    add_row(table, fmt::format("{} --{} {}", row.retention, row.option, row.value), row.result);
  }
  return table;
}

Table grid_table(const WhatIfGrid& grid) {
  Table table(table_header("strategy"));
  for (const WhatIfGrid::Line& line : grid.lines)
    for (const auto& [limit, result] : line.points)
      add_row(table, limit ? fmt::format("{}, limit {}", line.name, format_size(limit)) : line.name, result);
  return table;
}

std::string strategies_text(const Strategies& strategies, const runlog::Report& report,
                            const std::string& indent) {
  return fmt::format("{}{}:\n", indent, strategies_title(strategies)) +
         strategies_table(strategies, report).text(indent);
}

std::string what_if_text(const Strategies& strategies, const std::string& indent) {
  const Table table = what_if_table(strategies);
  return table.rows().size() < 2 ? std::string() : indent + kWhatIfMeaning + "\n" + table.text(indent);
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
  for (const auto& [retention, option, value, result] : strategies.what_if)
    what_if.push_back(row({{"retention", retention}, {"option", option}, {"value", value}}, result));
  return {{"simulated", true},
          {"nic", strategies.nic},
          {"ranks", strategies.ranks},
          {"of_ranks", strategies.of_ranks},
          {"covers_seconds", strategies.covers_seconds > 0 ? Json(strategies.covers_seconds) : Json(nullptr)},
          {"rows", std::move(rows)},
          {"what_if", std::move(what_if)}};
}

}  // namespace pinion::cli
