#include "paper.h"

#include <fmt/format.h>

#include <initializer_list>

#include "command.h"
#include "device/cost_model.h"
#include "simulate/simulation.h"
#include "text.h"

namespace pinion::cli {

namespace {

using simulate::Result;
using simulate::Settings;
using simulate::Workload;
using Row = PaperResult::Row;

Workload workload_of(const std::string& name, simulate::Placement placement) {
  simulate::Pattern pattern;
  if (const Error error = simulate::find_pattern(name, pattern)) throw Failure(error.message);
  return simulate::pattern_workload(pattern, 0, std::move(placement), {});
}
Workload workload_of(const std::string& name, int ppn = 1, const std::string& where = "packed") {
  simulate::Pattern pattern;
  simulate::Placement placement;
  Error error = simulate::find_pattern(name, pattern);
  if (!error) error = simulate::Placement::make(pattern.ranks, ppn, where, placement);
  if (error) throw Failure(error.message);
  return workload_of(name, std::move(placement));
}

/// The paper's helper has a core of its own and watches its queue there; registration on its ConnectX as UCX
/// models that.
Settings settings_of(RetentionKind retention) {
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
Result under(RetentionKind retention, const Workload& workload) {
  return simulate::simulate(workload, settings_of(retention));
}
using simulate::NoiseModel;
constexpr NoiseModel kQuiet{};
constexpr NoiseModel kOnePercent{NoiseModel::Kind::uniform, 0.01};

/// How good the predictions are, one full reuse ahead; in percent.
struct Accuracy {
  double within_5 = 0, within_0_5 = 0;
};
Accuracy accuracy(const Workload& workload, const std::string& predictor, unsigned window, NoiseModel noise) {
  Settings settings = settings_of(RetentionKind::helper);
  settings.predictor = predictor;
  settings.window = window;
  settings.noise = noise;
  const runlog::Prediction prediction = simulate::simulate(workload, settings).prediction;
  return {100 * prediction.at_release_within_5, 100 * prediction.at_release_within_0_5};
}

double saved(double ours, double theirs) { return 100 * (1 - ours / theirs); }
double peak(const Result& result) { return static_cast<double>(result.registered.peak); }

/// The helper's saving against leave-pinned, of the peak and of the mean.
void add_savings(PaperResult& result, const std::string& name, const Workload& workload, double paper_peak) {
  const Result helper = under(RetentionKind::helper, workload);
  const Result pinned = under(RetentionKind::leave_pinned, workload);
  result.rows.push_back({name + ": peak saved", "%", paper_peak, saved(peak(helper), peak(pinned))});
  const auto oracle_peak = static_cast<double>(helper.registered.oracle_peak);
  result.rows.push_back({name + ": peak that an oracle saves", "%", {}, saved(oracle_peak, peak(pinned))});
  result.rows.push_back(
      {name + ": mean saved", "%", {}, saved(helper.registered.mean, pinned.registered.mean)});
}

/// Run times, of the helper and under leave-pinned.
void add_times(PaperResult& result, const std::string& name, const Workload& workload, double paper_helper,
               double paper_pinned) {
  const Result helper = under(RetentionKind::helper, workload);
  const Result pinned = under(RetentionKind::leave_pinned, workload);
  result.rows.push_back({name + ": helper", "s", paper_helper, helper.seconds});
  result.rows.push_back({name + ": leave-pinned", "s", paper_pinned, pinned.seconds});
  result.rows.push_back({name + ": helper over leave-pinned", "%", 100 * (paper_helper / paper_pinned - 1),
                         100 * (helper.seconds / pinned.seconds - 1)});
}

struct Program {
  const char* name;
  const char* pattern;
};
constexpr Program kSix[] = {{"BT", "bt:D:4"}, {"LU", "lu:D:4"}, {"SP", "sp:D:4"},
                            {"CG", "cg:D:4"}, {"FT", "ft:B:4"}, {"MG", "mg:D:4"}};

// ---- figures ----

PaperResult figure_2() {
  PaperResult result{
      "Figure 2",
      "Registered memory and communication time of traditional schemes, 5 MB messages",
      "Figure 1's program, ten turns; the sender's three buffers; a message takes 3.5 ms on the network",
      {}};
  const Workload workload = workload_of("reuse:5M:2");
  const Result on_demand = under(RetentionKind::on_demand, workload);
  const Result pinned = under(RetentionKind::leave_pinned, workload);
  const Result helper = under(RetentionKind::helper, workload);
  constexpr double kMessages = 30;
  const double network =
      kMessages * (static_cast<double>(5 << 20) / simulate::Machine{}.network_bytes_per_second);
  const auto communication = [&](const Result& r) { return network + r.cost.registration(); };
  result.rows = {
      {"communication takes longer without leave-pinned", "%", 25.83,
       100 * (communication(on_demand) / communication(pinned) - 1)},
      {"the same, under the helper", "%", {}, 100 * (communication(helper) / communication(pinned) - 1)},
      {"peak under leave-pinned", "MiB", {}, peak(pinned) / (1 << 20)},
      {"peak without leave-pinned", "MiB", {}, peak(on_demand) / (1 << 20)},
      {"peak under the helper", "MiB", {}, peak(helper) / (1 << 20)},
  };
  return result;
}

/// The mean of six benchmarks, and each of them.
void add_accuracy(PaperResult& result, const std::string& predictor, NoiseModel noise, const char* how,
                  std::optional<double> paper_5, std::optional<double> paper_0_5) {
  Accuracy mean;
  std::vector<Row> each;
  for (const Program& program : kSix) {
    const Accuracy of = accuracy(workload_of(program.pattern), predictor, 2, noise);
    mean.within_5 += of.within_5 / std::size(kSix);
    mean.within_0_5 += of.within_0_5 / std::size(kSix);
    each.push_back({fmt::format("   {}: within 5 %", program.name), "%", {}, of.within_5});
    each.push_back({fmt::format("   {}: within 0.5 %", program.name), "%", {}, of.within_0_5});
  }
  result.rows.push_back({fmt::format("{}, {}: within 5 %", predictor, how), "%", paper_5, mean.within_5});
  result.rows.push_back(
      {fmt::format("{}, {}: within 0.5 %", predictor, how), "%", paper_0_5, mean.within_0_5});
  result.rows.insert(result.rows.end(), each.begin(), each.end());
}

PaperResult figure_5() {
  PaperResult result{"Figure 5",
                     "Prediction accuracy, one full reuse ahead, of six NAS benchmarks",
                     "means of BT, LU, SP, CG, MG of class D and FT of class B on 4 ranks; noise 1 %: every "
                     "computation strays by up to that",
                     {}};
  const auto add = [&](const char* predictor, double paper_5, double paper_0_5) {
    if (!simulate::is_predictor(predictor)) return;
    add_accuracy(result, predictor, kQuiet, "no noise", paper_5, paper_0_5);
    add_accuracy(result, predictor, kOnePercent, "noise 1 %", paper_5, paper_0_5);
  };
  add("shortest", 94.68, 74.89);
  add("periodicity", 84.93, 40);  // the paper says "less than 40 %"
  return result;
}

PaperResult figure_6() {
  PaperResult result{"Figure 6",
                     "Sensitivity of the predictors to their window, NAS CG",
                     "CG of class D on 4 ranks; within 0.5 %, one full reuse ahead; no noise",
                     {}};
  const Workload cg = workload_of("cg:D:4");
  std::vector<double> within;
  for (const unsigned window : {0u, 1u, 2u, 4u, 8u}) {
    within.push_back(accuracy(cg, "shortest", window, kQuiet).within_0_5);
    result.rows.push_back({fmt::format("shortest, window of {}", window), "%", {}, within.back()});
  }
  result.rows.push_back({"shortest: lost without a window", "points", 20, within[2] - within[0]});
  if (simulate::is_predictor("periodicity"))
    for (const unsigned window : {1u, 2u, 4u, 8u})
      result.rows.push_back({fmt::format("periodicity, window of {}", window),
                             "%",
                             {},
                             accuracy(cg, "periodicity", window, kQuiet).within_0_5});
  return result;
}

// ---- helpers that share the idle cores of a node (section 5) ----

struct Crowd {
  const char* name;
  Workload workload;
  double paper[3];  ///< Table 1: no helper, conservative, aggressive
};

/// Nodes of 8 cores, mostly with 6 ranks: two idle cores, three helpers on each under the aggressive policy.
std::vector<Crowd> crowds() {
  std::vector<int> node_of;  // CG: two nodes of 6 ranks, four of 5
  for (int node = 0; node < 6; ++node) node_of.insert(node_of.end(), node < 2 ? 6 : 5, node);
  std::vector<Crowd> all;
  all.push_back({"SP.D.36", workload_of("sp:D:36", 6), {18.60, 18.60, 18.62}});
  all.push_back({"CG.D.32", workload_of("cg:D:32", simulate::Placement(node_of)), {17.08, 17.09, 17.09}});
  return all;
}

Result crowded(const Workload& workload, PolicyKind policy) {
  Settings settings = settings_of(RetentionKind::helper);
  settings.policy = policy;
  settings.time_slices.slice = 100 * kMillisecond;  // of the paper's Linux
  return simulate::simulate(workload, settings);
}

PaperResult figure_8() {
  PaperResult result{
      "Figure 8",
      "Registered memory of a node with fewer idle cores than helpers, against leave-pinned",
      "nodes of 8 cores with 6 ranks (CG: 5 on four of six); policies decide every 100 operations; time "
      "slices of 100 ms; without a helper a rank leaves everything pinned",
      {}};
  for (const Crowd& crowd : crowds()) {
    const Result pinned = under(RetentionKind::leave_pinned, crowd.workload);
    const auto add = [&](const char* how, PolicyKind policy) {
      const Result of = crowded(crowd.workload, policy);
      result.rows.push_back({fmt::format("{}: mean saved, {}", crowd.name, how),
                             "%",
                             {},
                             saved(of.registered.mean, pinned.registered.mean)});
    };
    result.rows.push_back(
        {fmt::format("{}: peak without helpers", crowd.name), "MiB", {}, peak(pinned) / (1 << 20)});
    add("aggressive", PolicyKind::aggressive);
    add("conservative", PolicyKind::conservative);
    add("sleeping (ours)", PolicyKind::sleeping);
  }
  return result;
}

PaperResult table_1() {
  PaperResult result{"Table 1",
                     "Run times with fewer idle cores than helpers",
                     "as Figure 8; modelled at 1 Gflop/s a core and 1.5 GB/s: only ratios can be compared",
                     {}};
  for (const Crowd& crowd : crowds()) {
    const double none = under(RetentionKind::leave_pinned, crowd.workload).seconds;
    const double conservative = crowded(crowd.workload, PolicyKind::conservative).seconds;
    const double aggressive = crowded(crowd.workload, PolicyKind::aggressive).seconds;
    const double sleeping = crowded(crowd.workload, PolicyKind::sleeping).seconds;
    const auto over = [&](const char* how, std::optional<double> paper, double seconds) {
      result.rows.push_back(
          {fmt::format("{}: {} over no helper", crowd.name, how), "%", paper, 100 * (seconds / none - 1)});
    };
    result.rows.push_back({fmt::format("{}: no helper", crowd.name), "s", crowd.paper[0], none});
    over("conservative", 100 * (crowd.paper[1] / crowd.paper[0] - 1), conservative);
    over("aggressive", 100 * (crowd.paper[2] / crowd.paper[0] - 1), aggressive);
    over("sleeping (ours)", {}, sleeping);
  }
  return result;
}

PaperResult figure_11() {
  PaperResult result{
      "Figure 11",
      "Registered memory of NAS benchmarks, one rank a node, against leave-pinned",
      "4 ranks of class D (FT: class B); FT of class D in pencils on 2x16 ranks under a limit of 3 GB",
      {}};
  constexpr double kPaper[] = {16.13, 18.43, 8.68, 0, 31.0};
  for (std::size_t i = 0; i < std::size(kPaper); ++i)
    add_savings(result, kSix[i].name, workload_of(kSix[i].pattern), kPaper[i]);
  const Workload ft = workload_of("ft:D:2x16");
  Settings limited = settings_of(RetentionKind::helper);
  limited.limit = 3'000'000'000;
  const Result helper = simulate::simulate(ft, limited);
  result.rows.push_back(
      {"FT.D 2x16: leave-pinned needs", "GB", 3.58, peak(under(RetentionKind::leave_pinned, ft)) / 1e9});
  result.rows.push_back({"FT.D 2x16, limit 3 GB: the helper's peak", "GB", {}, peak(helper) / 1e9});
  result.rows.push_back({"FT.D 2x16, limit 3 GB: transfers without registration", "", 0,
                         static_cast<double>(helper.acquires.bounced)});
  return result;
}

constexpr const char* kGroupings[] = {"random:1", "random:2"};

PaperResult figure_12() {
  PaperResult result{
      "Figure 12",
      "FT.C on 2x8 ranks, four on a node, grouped at random, against leave-pinned",
      "registered bytes of the node with the highest peak; ranks of one node need no registration for each "
      "other",
      {}};
  constexpr double kPaper[] = {49.39, 41.70};
  for (std::size_t i = 0; i < std::size(kGroupings); ++i)
    add_savings(result, fmt::format("test {}", i + 1), workload_of("ft:C:2x8", 4, kGroupings[i]), kPaper[i]);
  return result;
}

struct Scaling {
  int nodes;
  const char* pattern;
  double saved, helper, pinned;  ///< the paper's
};
constexpr Scaling kStrong[] = {{16, "ft:D:16", 33.19, 2082.73, 2085.86},
                               {32, "ft:D:32", 34.08, 1055.95, 1056.00},
                               {64, "ft:D:64", 31.70, 519.57, 518.53}};
constexpr Scaling kWeak[] = {{16, "ft:2048x1024x512:16", 33.05, 1041.58, 1039.46},
                             {32, "ft:D:32", 34.08, 1055.95, 1056.00},
                             {64, "ft:2048x2048x1024:64", 33.09, 1093.16, 1092.23}};

PaperResult scaling(const char* name, const char* title, const Scaling (&cases)[3]) {
  PaperResult result{
      name, title, "FT in slabs, one rank a node, class D on 32 nodes, against leave-pinned", {}};
  for (const Scaling& of : cases)
    add_savings(result, fmt::format("{} nodes", of.nodes), workload_of(of.pattern), of.saved);
  return result;
}

// ---- tables ----

PaperResult table_2() {
  PaperResult result{"Table 2",
                     "Run times of NAS benchmarks on 4 nodes",
                     "modelled at 1 Gflop/s a core and 1.5 GB/s: only the ratio of the two can be compared",
                     {}};
  constexpr double kPaper[][2] = {
      {265.98, 266.87}, {219.39, 218.80}, {140.59, 141.10}, {200.04, 202.31}, {79.47, 79.50}};
  for (std::size_t i = 0; i < std::size(kPaper); ++i)
    add_times(result, kSix[i].name, workload_of(kSix[i].pattern), kPaper[i][0], kPaper[i][1]);
  return result;
}

PaperResult table_3() {
  PaperResult result{"Table 3",
                     "Run times of FT.C on 2x8 ranks, four on a node, grouped at random",
                     "modelled at 1 Gflop/s a core and 1.5 GB/s: only the ratio of the two can be compared",
                     {}};
  constexpr double kPaper[][2] = {{102.62, 104.05}, {102.64, 103.36}};
  for (std::size_t i = 0; i < std::size(kGroupings); ++i)
    add_times(result, fmt::format("test {}", i + 1), workload_of("ft:C:2x8", 4, kGroupings[i]), kPaper[i][0],
              kPaper[i][1]);
  return result;
}

PaperResult table_4() {
  PaperResult result{"Table 4",
                     "Run times of FT under strong and weak scaling",
                     "modelled at 1 Gflop/s a core and 1.5 GB/s: only the ratio of the two can be compared",
                     {}};
  for (const Scaling& of : kStrong)
    add_times(result, fmt::format("strong, {} nodes", of.nodes), workload_of(of.pattern), of.helper,
              of.pinned);
  for (const Scaling& of : kWeak)
    add_times(result, fmt::format("weak, {} nodes", of.nodes), workload_of(of.pattern), of.helper, of.pinned);
  return result;
}

}  // namespace

PaperResult paper_figure(int number) {
  switch (number) {
    case 2:
      return figure_2();
    case 5:
      return figure_5();
    case 6:
      return figure_6();
    case 8:
      return figure_8();
    case 11:
      return figure_11();
    case 12:
      return figure_12();
    case 13:
      return scaling("Figure 13", "Strong scaling of FT", kStrong);
    case 14:
      return scaling("Figure 14", "Weak scaling of FT", kWeak);
    default:
      throw UsageError(fmt::format("figure {} is not simulated; valid: 2, 5, 6, 8, 11, 12, 13, 14", number));
  }
}

PaperResult paper_table(int number) {
  switch (number) {
    case 1:
      return table_1();
    case 2:
      return table_2();
    case 3:
      return table_3();
    case 4:
      return table_4();
    default:
      throw UsageError(fmt::format("table {} is not simulated; valid: 1, 2, 3, 4", number));
  }
}

Json to_json(const PaperResult& result) {
  Json rows = Json::array();
  for (const Row& row : result.rows)
    rows.push_back({{"what", row.what},
                    {"unit", row.unit},
                    {"paper", row.paper ? Json(*row.paper) : Json(nullptr)},
                    {"ours", row.ours}});
  return {{"schema", "pinion-paper-1"},
          {"name", result.name},
          {"title", result.title},
          {"how", result.how},
          {"rows", rows}};
}

std::string to_text(const PaperResult& result) {
  Table table({"", "unit", "paper", "ours"});
  for (const Row& row : result.rows)
    table.add({row.what, row.unit, row.paper ? fmt::format("{:.2f}", *row.paper) : "-",
               fmt::format("{:.2f}", row.ours)});
  return fmt::format("{}: {}\n{}Simulated: {}.\n", result.name, result.title, table.text(), result.how);
}

}  // namespace pinion::cli
