#include <algorithm>
#include <deque>

#include "cli/report/recommendation.h"
#include "cli/simulate/rows.h"
#include "cli/simulate/strategies.h"
#include "cli/text.h"

namespace pinion::cli {

using simulate::Workload;

namespace {

/// The rows of a workload that its verdict is on: without noise and without a limit of the node, with the
/// first value of each list but the limits'.
std::vector<const SimulateRow*> plain_rows(const std::vector<SimulateRow>& rows, const Workload* workload) {
  std::vector<const SimulateRow*> plain;
  const SimulateRow* first = nullptr;
  const auto is_plain = [&](const SimulateRow& row) {
    return !row.settings.disturbance && row.settings.node_limit == 0 &&
           std::all_of(row.choice.begin(), row.choice.end(), [&](const auto& of) {
             return of.first == "limit" || of.first == "retention" || of.first == "lru-size" ||
                    of.second == first->choice.at(of.first);
           });
  };
  for (const SimulateRow& row : rows) {
    if (row.workload != workload) continue;
    if (first == nullptr) first = &row;
    if (is_plain(row)) plain.push_back(&row);
  }
  return plain;
}

/// Simulates the ways that a user's rows lack, as far as two seconds of processor time go: for a verdict.
class OtherWays {
 public:
  OtherWays(const std::vector<const SimulateRow*>& plain, std::vector<Way>& ways)
      : like_(*plain.front()), ways_(ways) {
    for (const SimulateRow* row : plain) ways_.push_back({row->options, &row->result});
    for (const RetentionKind kind :
         {RetentionKind::leave_pinned, RetentionKind::helper, RetentionKind::lru, RetentionKind::on_demand})
      add({kind, "limit", "0"});
    const simulate::Result& any = *ways_.front().result;
    const auto a_node = static_cast<std::uint64_t>(ranks_of_node(any));
    for (const WayChange& change :
         ways_to_try(any.registered.oracle_peak / a_node, any.registered.leave_pinned_peak / a_node))
      add(change);
  }

 private:
  void add(const WayChange& change) {
    Options options = like_.options;
    options.limit = 0;
    check(set_option(options, "retention", to_string(change.retention)));
    check(set_option(options, change.option, change.value));
    const auto is_same = [&](const Way& way) {
      return format_options(way.options) == format_options(options);
    };
    if (std::any_of(ways_.begin(), ways_.end(), is_same) || !allowance_.allows()) return;
    simulate::Settings settings = like_.settings;
    settings.retention = options.retention;
    settings.limit = options.limit;
    settings.lru_bytes = options.lru_size;
    results_.push_back(simulate::simulate(*like_.workload, settings));
    ways_.push_back({options, &results_.back()});
  }

  const SimulateRow& like_;
  std::vector<Way>& ways_;
  std::deque<simulate::Result> results_;
  Allowance allowance_{2};
};

}  // namespace

Verdict verdict_of(const std::vector<SimulateRow>& rows) {
  Verdict verdict;
  const Workload* workload = nullptr;
  for (const SimulateRow& row : rows) {
    if (row.workload == workload) continue;
    workload = row.workload;
    const std::vector<const SimulateRow*> plain = plain_rows(rows, workload);
    if (plain.empty()) continue;
    const bool is_log = !workload->log.empty(), is_only = rows.back().workload == rows.front().workload;
    Situation situation;
    if (!is_only) situation.name = is_log ? workload->log : workload->pattern;
    situation.simulated = "simulated";
    situation.program = typed_program(is_log ? workload->command : "CMD", row.result.ranks);
    const OtherWays others(plain, situation.ways);
    situation.least_gain = least_gain_of(row.options, row.settings.minimum_gain.machine);
    situation.default_gain = least_gain_of(Options(), row.settings.minimum_gain.machine);
    situation.has_library = workload->of_mpi;
    recommend(verdict, situation);
  }
  return verdict;
}

}  // namespace pinion::cli
