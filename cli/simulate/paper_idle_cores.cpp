// The paper's section 5, Figure 8 and Table 1: helpers that share the idle cores of a node.
#include <fmt/format.h>

#include <initializer_list>

#include "cli/simulate/paper_parts.h"

namespace pinion::cli {

namespace {

using simulate::Machine;
using simulate::Result;
using simulate::Settings;
using simulate::Workload;

struct Crowd {
  const char* name;
  const char* pattern;
  std::vector<int> node_of;  ///< rank by rank
  double paper[3];           ///< Table 1: no helper, conservative, aggressive

  Workload workload(double gflops = 1) const {
    Machine machine;
    machine.flops = gflops * 1e9;
    return paper_workload(pattern, simulate::Placement(node_of), machine);
  }
};

/// Nodes of 8 cores, mostly with 6 ranks: two idle cores, three helpers on each under the aggressive policy.
std::vector<Crowd> crowds() {
  std::vector<int> sixes, fives;  // SP: 6 ranks a node; CG: two nodes of 6 ranks, four of 5
  for (int node = 0; node < 6; ++node) {
    sixes.insert(sixes.end(), 6, node);
    fives.insert(fives.end(), node < 2 ? 6 : 5, node);
  }
  return {{"SP.D.36", "sp:D:36", sixes, {18.60, 18.60, 18.62}},
          {"CG.D.32", "cg:D:32", fives, {17.08, 17.09, 17.09}}};
}

Result crowded(const Workload& workload, PolicyKind policy, Duration slice = 100 * kMillisecond) {
  Settings settings = paper_settings(RetentionKind::helper);
  settings.policy = policy;
  settings.time_slices.slice = slice;
  return simulate::simulate(workload, settings);
}

double mean_saved(const Result& of, const Result& pinned) {
  return saved(of.registered.mean, pinned.registered.mean);
}

/// The order of the policies over processor speed and time slice, which the paper does not give.
void add_dependence(PaperResult& result, const Crowd& crowd) {
  for (const double gflops : {1.0, 4.0, 16.0}) {
    const Workload workload = crowd.workload(gflops);
    const Result pinned = under(RetentionKind::leave_pinned, workload);
    const std::string at = fmt::format("{} at {:.0f} Gflop/s", crowd.name, gflops);
    for (const Duration slice : {4 * kMillisecond, 20 * kMillisecond, 100 * kMillisecond})
      result.rows.push_back(
          {fmt::format("{}: mean saved, aggressive, slices of {} ms", at, slice / kMillisecond),
           "%",
           {},
           mean_saved(crowded(workload, PolicyKind::aggressive, slice), pinned)});
    result.rows.push_back({fmt::format("{}: mean saved, conservative", at),
                           "%",
                           {},
                           mean_saved(crowded(workload, PolicyKind::conservative), pinned)});
  }
}

}  // namespace

PaperResult paper_figure_8() {
  PaperResult result{
      "Figure 8",
      "Registered memory of a node with fewer idle cores than helpers, against leave-pinned",
      "nodes of 8 cores with 6 ranks (CG: 5 on four of six); policies decide every 100 operations; without a "
      "helper a rank leaves everything pinned",
      {}};
  for (const Crowd& crowd : crowds()) {
    const Workload workload = crowd.workload();
    const Result pinned = under(RetentionKind::leave_pinned, workload);
    result.rows.push_back(
        {fmt::format("{}: peak without helpers", crowd.name), "MiB", {}, peak_of(pinned) / (1 << 20)});
    add_dependence(result, crowd);
    result.rows.push_back({fmt::format("{}: mean saved, sleeping (ours)", crowd.name),
                           "%",
                           {},
                           mean_saved(crowded(workload, PolicyKind::sleeping), pinned)});
  }
  return result;
}

PaperResult paper_table_1() {
  PaperResult result{
      "Table 1",
      "Run times with fewer idle cores than helpers",
      "as Figure 8, time slices of 100 ms; modelled at 1 Gflop/s a core and 1.5 GB/s: only ratios "
      "can be compared",
      {}};
  for (const Crowd& crowd : crowds()) {
    const Workload workload = crowd.workload();
    const double none = under(RetentionKind::leave_pinned, workload).seconds;
    const auto over = [&](const char* how, std::optional<double> paper, PolicyKind policy) {
      result.rows.push_back({fmt::format("{}: {} over no helper", crowd.name, how), "%", paper,
                             longer(crowded(workload, policy).seconds, none)});
    };
    result.rows.push_back({fmt::format("{}: no helper", crowd.name), "s", crowd.paper[0], none});
    over("conservative", longer(crowd.paper[1], crowd.paper[0]), PolicyKind::conservative);
    over("aggressive", longer(crowd.paper[2], crowd.paper[0]), PolicyKind::aggressive);
    over("sleeping (ours)", {}, PolicyKind::sleeping);
  }
  return result;
}

}  // namespace pinion::cli
