#include "cli/run/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/recommendation.h"
#include "cli/report/report_tables.h"
#include "cli/report/verdict.h"
#include "cli/run/compare_verdict.h"
#include "cli/simulate/strategies.h"
#include "cli/text.h"
#include "cli/typed.h"

namespace pinion::cli {

namespace {

struct Spread {
  double median, least, most;
};

template <class F>
Spread spread(const std::vector<ComparedRun>& runs, F&& value) {
  std::vector<double> values;
  for (const ComparedRun& run : runs) values.push_back(value(run));
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

template <class F>
double median(const ComparedStrategy& strategy, F&& of_report) {
  return spread(strategy.runs,
                [&](const ComparedRun& run) { return static_cast<double>(of_report(*run.report)); })
      .median;
}

bool reported(const ComparedStrategy& strategy) {
  return std::all_of(strategy.runs.begin(), strategy.runs.end(),
                     [](const ComparedRun& run) { return run.report.has_value(); });
}

runlog::RegisteredBytes medians_of_bytes(const ComparedStrategy& strategy) {
  const auto of = [&](auto member) {
    return median(strategy, [&](const auto& report) { return report.registered().*member; });
  };
  using B = runlog::RegisteredBytes;
  const auto count = [&](auto member) { return static_cast<std::uint64_t>(of(member)); };
  B b;
  b.peak = count(&B::peak);
  b.mean = of(&B::mean);
  b.oracle_peak = count(&B::oracle_peak);
  b.oracle_mean = of(&B::oracle_mean);
  b.leave_pinned_peak = count(&B::leave_pinned_peak);
  b.leave_pinned_mean = of(&B::leave_pinned_mean);
  b.bounds_known = std::all_of(strategy.runs.begin(), strategy.runs.end(),
                               [](const ComparedRun& run) { return run.report->registered().bounds_known; });
  return b;
}

runlog::TimeBudgetUse medians_of_budget(const ComparedStrategy& s) {
  const auto of = [&](auto member) { return median(s, [=](const auto& r) { return r.budget.*member; }); };
  using B = runlog::TimeBudgetUse;
  return {of(&B::allowed), of(&B::on_threads), of(&B::by_helper), of(&B::preempted),
          static_cast<std::uint64_t>(of(&B::refused))};
}

bool all_reported(const std::vector<ComparedStrategy>& strategies) {
  return std::all_of(strategies.begin(), strategies.end(), reported);
}

Spread elapsed(const ComparedStrategy& strategy) {
  return spread(strategy.runs, [](const ComparedRun& run) { return run.elapsed; });
}

// The time from MPI_Init to MPI_Finalize, which leaves the launcher's own time out.
Spread run_length(const ComparedStrategy& strategy) {
  return spread(strategy.runs, [](const ComparedRun& run) { return run.report->wall_seconds; });
}

std::string misses_text(const ComparedStrategy& s) {
  const auto count = [&](auto member) {
    return count_text(
        static_cast<std::uint64_t>(median(s, [&](const auto& r) { return r.acquires.*member; })));
  };
  using A = runlog::Acquires;
  return fmt::format("{} / {} / {}", count(&A::misses), count(&A::late), count(&A::bounced));
}

// The figures below libraries: those of the NIC, and of both kinds of caches alike.
struct BelowLibraries {
  std::optional<NicMemory::Figures> nic;
  UnregisteredUses unregistered;
};

BelowLibraries medians_below(const ComparedStrategy& s) {
  BelowLibraries b;
  const auto all = [&](auto has) { return std::all_of(s.runs.begin(), s.runs.end(), has); };
  if (all([](const ComparedRun& run) { return run.nic.has_value(); })) {
    using F = NicMemory::Figures;
    const auto of = [&](auto member) {
      return spread(s.runs, [&](const ComparedRun& run) { return static_cast<double>((*run.nic).*member); })
          .median;
    };
    const auto count = [&](auto member) { return static_cast<std::uint64_t>(of(member)); };
    b.nic = F{count(&F::peak_bytes), count(&F::peak_regions), of(&F::mean_bytes), of(&F::mean_regions)};
  }
  if (s.counted) b.unregistered = *s.counted;
  if (s.counted || !s.row.has_pinion()) return b;
  const auto of = [&](auto member) {
    const auto value = [&](const ComparedRun& run) { return static_cast<double>(run.unregistered.*member); };
    return static_cast<std::uint64_t>(spread(s.runs, value).median);
  };
  b.unregistered = {of(&UnregisteredUses::all), of(&UnregisteredUses::reuses),
                    all([](const ComparedRun& run) { return run.unregistered.known; })};
  return b;
}

std::string wall_text(const ComparedStrategy& s, bool by_logs) {
  const Spread w = by_logs ? run_length(s) : elapsed(s);
  return fmt::format("{:.3f} ({:.3f} - {:.3f})", w.median, w.least, w.most);
}

std::string memory_table(const std::vector<ComparedStrategy>& strategies, bool by_logs) {
  Table table({"strategy", "wall time, s (min - max)", "registered peak / mean", "oracle peak / mean"});
  for (const ComparedStrategy& s : strategies) {
    std::string held = "-", oracle = "-";
    if (reported(s)) {
      const runlog::RegisteredBytes b = medians_of_bytes(s);
      held = pair_text(static_cast<double>(b.peak), b.mean);
      oracle = b.bounds_known ? pair_text(static_cast<double>(b.oracle_peak), b.oracle_mean) : kNotKnown;
    }
    table.add({s.row.name, wall_text(s, by_logs), held, oracle});
  }
  return table.text();
}

std::string time_table(const std::vector<ComparedStrategy>& strategies, bool by_logs) {
  Table table({"strategy", "seconds added", "misses / late / bounced", "of the time budget"});
  for (const ComparedStrategy& s : strategies) {
    if (!reported(s)) continue;
    const Spread share = spread(s.runs, [&](const ComparedRun& run) {
      const double whole = by_logs ? run.report->wall_seconds : run.elapsed;
      return whole > 0 ? run.report->cost.added() / whole : 0;
    });
    const bool acts = s.row.retention == to_string(RetentionKind::helper);
    table.add({s.row.name,
               fmt::format("{} ({})", seconds_text(median(s, [](const auto& r) { return r.cost.added(); })),
                           percent_text(share.median)),
               misses_text(s), acts ? spent_text(medians_of_budget(s)) : "-"});
  }
  return table.text();
}

std::string nic_table(const std::vector<ComparedStrategy>& strategies) {
  Table table({"strategy", "NIC's bytes peak / mean", "NIC's regions", "critical path (reuses)"});
  for (const ComparedStrategy& s : strategies) {
    const BelowLibraries b = medians_below(s);
    table.add({s.row.name,
               b.nic ? pair_text(static_cast<double>(b.nic->peak_bytes), b.nic->mean_bytes) : kNotKnown,
               b.nic ? fmt::format("{} / {:.1f}", b.nic->peak_regions, b.nic->mean_regions) : kNotKnown,
               b.unregistered.known
                   ? fmt::format("{} ({})", count_text(b.unregistered.all), count_text(b.unregistered.reuses))
                   : kNotKnown});
  }
  return table.text();
}

std::string tables_text(const std::vector<ComparedStrategy>& strategies, bool below) {
  const bool by_logs = all_reported(strategies);  // one clock for all rows
  std::string out = memory_table(strategies, by_logs);
  if (std::any_of(strategies.begin(), strategies.end(), reported))
    out += "\n" + time_table(strategies, by_logs);
  return below ? out + "\n" + nic_table(strategies) : out;
}

/// Without the device of a trial (recommendation.h).
OptionFlags flags_to_advise(const ComparedStrategy& s) {
  OptionFlags flags = s.flags;
  if (s.row.has_pinion() && reported(s) && is_trial(*s.runs.front().report))
    flags.set("device", Options().device);
  return flags;
}

/// The strategy whose run is simulated under others: leave-pinned keeps the program's own times best.
const ComparedStrategy* to_simulate(const std::vector<ComparedStrategy>& strategies) {
  const ComparedStrategy* found = nullptr;
  for (const ComparedStrategy& s : strategies)
    if (reported(s) && !s.row.limited &&
        (found == nullptr || s.row.retention == to_string(RetentionKind::leave_pinned)))
      found = &s;
  return found;
}

Verdict verdict_of(const CompareArguments& arguments, const std::vector<ComparedStrategy>& strategies) {
  const bool by_logs = all_reported(strategies);
  std::vector<ComparedRow> rows;
  for (const ComparedStrategy& s : strategies) {
    const Spread w = by_logs ? run_length(s) : elapsed(s);
    const bool has_logs = reported(s);
    rows.push_back(
        {s.row.name, has_logs ? medians_of_bytes(s) : runlog::RegisteredBytes{},
         has_logs ? static_cast<std::uint64_t>(median(s, [](const auto& r) { return r.acquires.bounced; }))
                  : 0,
         w.median, w.least, w.most, has_logs ? median(s, [](const auto& r) { return r.cost.added(); }) : 0,
         s.runs.size(), typed(s.row, flags_to_advise(s), s.variables, arguments.command)});
  }
  const ComparedStrategy* const simulated = to_simulate(strategies);
  if (simulated == nullptr) return cli::verdict_of(rows, {});
  const ComparedRun& run = simulated->runs.front();
  const std::optional<Strategies> ways = strategies_of(*run.report, {run.logs});
  const std::optional<LibrariesPart> held = held_by_libraries(*run.report, {run.logs});
  return cli::verdict_of(rows, situation_of(*run.report, ways ? &*ways : nullptr, held ? &*held : nullptr,
                                            {"", quoted(arguments.command)}));
}

std::string device_note(const CompareArguments& arguments) {
  return arguments.no_nic ? " (no NIC registers here, and no --device was given)" : "";
}

// Names the kind of figures.
std::string label_text(const CompareArguments& arguments, const std::vector<ComparedStrategy>& strategies,
                       bool below) {
  std::string text = fmt::format(
      "Medians of {} of each, interleaved; wall time, and seconds added as a share of it, in all rows {}. ",
      plural_text(arguments.repeat, "run", "runs"),
      all_reported(strategies) ? "from MPI_Init to MPI_Finalize"
                               : "of the whole command, its launcher included (a strategy left no logs)");
  text +=
      "Registered bytes of a node, sum over its ranks; oracle is the least possible. Seconds added: the time "
      "that "
      "registration costs beyond leave-pinned's. Late: misses of memory used before. ";
  if (below)
    text +=
        "NIC: regions of this node's devices by the kernel's list, every 20 ms over the whole command, also "
        "those that libraries keep for themselves. Critical path: uses that found no registration; in "
        "parentheses without the first two of each range.";
  std::string out = wrapped(text, "");
  for (const ComparedStrategy& s : strategies)
    if (reported(s))
      return out +
             wrapped(fmt::format("Device: {}{}", s.runs.front().report->device, device_note(arguments)), "");
  return out + "No rank left a log: did the program use MPI?\n";
}

// The command to type for each row.
std::string typed_text(const CompareArguments& arguments, const std::vector<ComparedStrategy>& strategies) {
  std::string text;
  for (const ComparedStrategy& s : strategies)
    text += fmt::format("{}:  {}\n", s.row.name, typed(s.row, s.flags, s.variables, arguments.command));
  return text;
}

Json spread_json(const Spread& s) { return {{"median", s.median}, {"min", s.least}, {"max", s.most}}; }

Json below_json(const ComparedStrategy& s) {
  const BelowLibraries b = medians_below(s);
  Json nic, unregistered;  // null: not known
  if (b.nic)
    nic = {{"peak_bytes", b.nic->peak_bytes},
           {"mean_bytes", static_cast<std::uint64_t>(b.nic->mean_bytes)},
           {"peak_regions", b.nic->peak_regions},
           {"mean_regions", b.nic->mean_regions}};
  if (b.unregistered.known) unregistered = {{"uses", b.unregistered.all}, {"reuses", b.unregistered.reuses}};
  return {{"nic", std::move(nic)}, {"unregistered", std::move(unregistered)}};
}

Json row_json(const CompareArguments& arguments, const ComparedStrategy& s, bool below) {
  Json row = {{"retention", s.row.name},
              {"command", typed(s.row, s.flags, s.variables, arguments.command)},
              {"elapsed_seconds", spread_json(elapsed(s))}};
  if (below) row.update(below_json(s));
  if (reported(s)) {
    const auto count = [&](auto member) {
      return static_cast<std::uint64_t>(median(s, [&](const auto& r) { return r.acquires.*member; }));
    };
    using A = runlog::Acquires;
    row["wall_seconds"] = spread_json(run_length(s));
    row["seconds_added"] =
        spread_json(spread(s.runs, [](const ComparedRun& run) { return run.report->cost.added(); }));
    row["time_budget"] = to_json(medians_of_budget(s));
    row["helper_share"] = helper_share_json(medians_of_budget(s));
    row["registered_bytes"] = to_json(medians_of_bytes(s));
    row["acquires"] = {{"total", count(&A::total)}, {"hits", count(&A::hits)},
                       {"waits", count(&A::waits)}, {"misses", count(&A::misses)},
                       {"late", count(&A::late)},   {"bounced", count(&A::bounced)}};
  }
  Json logs = Json::array();
  for (const ComparedRun& run : s.runs) logs.push_back(run.logs);
  row["logs"] = std::move(logs);
  return row;
}

}  // namespace

Json comparison_json(const CompareArguments& arguments, const std::vector<ComparedStrategy>& strategies,
                     bool below) {
  Json rows = Json::array();
  std::string device;
  for (const ComparedStrategy& s : strategies) {
    rows.push_back(row_json(arguments, s, below));
    if (device.empty() && reported(s)) device = s.runs.front().report->device;
  }
  return {{"schema", "pinion-compare-1"},
          {"command", fmt::format("{}", fmt::join(arguments.command, " "))},
          {"device", device},
          {"repeat", arguments.repeat},
          {"rows", std::move(rows)},
          {"verdict", to_json(verdict_of(arguments, strategies))}};
}

std::string comparison_text(const CompareArguments& arguments,
                            const std::vector<ComparedStrategy>& strategies, bool below) {
  const std::string verdict = to_text(verdict_of(arguments, strategies), "");
  return fmt::format("{}\n{}{}Logs: {}\n{}{}", tables_text(strategies, below),
                     label_text(arguments, strategies, below), below ? typed_text(arguments, strategies) : "",
                     arguments.log, verdict.empty() ? "" : "\n", verdict);
}

}  // namespace pinion::cli
