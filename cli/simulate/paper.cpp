#include "cli/simulate/paper.h"

#include <fmt/format.h>

#include <initializer_list>

#include "cli/command.h"
#include "cli/simulate/paper_parts.h"
#include "cli/progress.h"
#include "cli/text.h"

namespace pinion::cli {

namespace {

using simulate::Result;
using simulate::Workload;
using Row = PaperResult::Row;

/// The helper's saving against leave-pinned, of the peak and of the mean.
void add_savings(PaperResult& result, const std::string& name, const Workload& workload, double paper_peak) {
  const Result helper = under(RetentionKind::helper, workload);
  const Result pinned = under(RetentionKind::leave_pinned, workload);
  result.rows.push_back({name + ": peak saved", "%", paper_peak, saved(peak_of(helper), peak_of(pinned))});
  const auto oracle_peak = static_cast<double>(helper.registered.oracle_peak);
  result.rows.push_back({name + ": peak that an oracle saves", "%", {}, saved(oracle_peak, peak_of(pinned))});
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
  result.rows.push_back({name + ": helper over leave-pinned", "%", longer(paper_helper, paper_pinned),
                         longer(helper.seconds, pinned.seconds)});
}

/// Figure 11f: between two and three arrays of 1 GiB; and the paper's limit, less all that its rank needs
/// beyond three arrays.
void add_limits(PaperResult& result) {
  const Workload ft = paper_workload("ft:D:2x16");
  const double needed = peak_of(under(RetentionKind::leave_pinned, ft));
  result.rows.push_back({"FT.D 2x16: leave-pinned needs", "GB", 3.58, needed / 1e9});
  const auto papers = static_cast<std::uint64_t>(3e9 - (3.58e9 - needed));
  for (const auto& [limit, name] : {std::pair{std::uint64_t{5} << 29, "limit 2.68 GB (2.5 GiB)"},
                                    std::pair{papers, "limit 3 GB, 0.36 of it taken"}}) {
    for (const RetentionKind retention : {RetentionKind::leave_pinned, RetentionKind::helper}) {
      const Result of = under(retention, ft, limit);
      const std::string what = fmt::format("FT.D 2x16, {}: {}", name, to_string(retention));
      const runlog::Acquires& a = of.acquires;
      result.rows.push_back({what + ", peak", "GB", {}, peak_of(of) / 1e9});
      result.rows.push_back(
          {what + ", transfers that found no registration",
           "%",
           {},
           100 * static_cast<double>(a.misses + a.waits + a.bounced) / static_cast<double>(a.total)});
    }
  }
}

PaperResult figure_11() {
  PaperResult result{"Figure 11",
                     "Registered memory of NAS benchmarks, one rank a node, against leave-pinned",
                     "4 ranks of class D (FT: class B); FT of class D in pencils on 2x16 ranks under limits",
                     {}};
  constexpr double kPaper[] = {16.13, 18.43, 8.68, 0, 31.0};
  for (std::size_t i = 0; i < std::size(kPaper); ++i)
    add_savings(result, kSixPrograms[i].name, paper_workload(kSixPrograms[i].pattern), kPaper[i]);
  add_limits(result);
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
    add_savings(result, fmt::format("test {}", i + 1), paper_workload("ft:C:2x8", 4, kGroupings[i]),
                kPaper[i]);
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
    add_savings(result, fmt::format("{} nodes", of.nodes), paper_workload(of.pattern), of.saved);
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
    add_times(result, kSixPrograms[i].name, paper_workload(kSixPrograms[i].pattern), kPaper[i][0],
              kPaper[i][1]);
  return result;
}

PaperResult table_3() {
  PaperResult result{"Table 3",
                     "Run times of FT.C on 2x8 ranks, four on a node, grouped at random",
                     "modelled at 1 Gflop/s a core and 1.5 GB/s: only the ratio of the two can be compared",
                     {}};
  constexpr double kPaper[][2] = {{102.62, 104.05}, {102.64, 103.36}};
  for (std::size_t i = 0; i < std::size(kGroupings); ++i)
    add_times(result, fmt::format("test {}", i + 1), paper_workload("ft:C:2x8", 4, kGroupings[i]),
              kPaper[i][0], kPaper[i][1]);
  return result;
}

PaperResult table_4() {
  PaperResult result{"Table 4",
                     "Run times of FT under strong and weak scaling",
                     "modelled at 1 Gflop/s a core and 1.5 GB/s: only the ratio of the two can be compared",
                     {}};
  for (const Scaling& of : kStrong)
    add_times(result, fmt::format("strong, {} nodes", of.nodes), paper_workload(of.pattern), of.helper,
              of.pinned);
  for (const Scaling& of : kWeak)
    add_times(result, fmt::format("weak, {} nodes", of.nodes), paper_workload(of.pattern), of.helper,
              of.pinned);
  return result;
}

struct Numbered {
  int number;
  PaperResult (*make)();
};

constexpr Numbered kFigures[] = {
    {2, paper_figure_2},
    {3, paper_figure_3},
    {5, paper_figure_5},
    {6, paper_figure_6},
    {8, paper_figure_8},
    {9, paper_figure_9},
    {10, paper_figure_10},
    {11, figure_11},
    {12, figure_12},
    {13, [] { return scaling("Figure 13", "Strong scaling of FT", kStrong); }},
    {14, [] { return scaling("Figure 14", "Weak scaling of FT", kWeak); }},
};
constexpr Numbered kTables[] = {{1, paper_table_1}, {2, table_2}, {3, table_3}, {4, table_4}};
constexpr const char* kOverhead = "4.3";

template <class List>
PaperResult find(const List& list, const char* what, int number) {
  std::string valid;
  for (const Numbered& each : list) {
    if (each.number == number) return each.make();
    valid += fmt::format("{}{}", valid.empty() ? "" : ", ", each.number);
  }
  throw UsageError(fmt::format("{} {} is not simulated; valid: {}", what, number, valid));
}

}  // namespace

PaperResult paper_figure(int number) { return find(kFigures, "figure", number); }
PaperResult paper_table(int number) { return find(kTables, "table", number); }
PaperResult paper_section(const std::string& number) {
  if (number == kOverhead) return paper_overhead();
  throw UsageError(fmt::format("section {} has no figures here; valid: {}", number, kOverhead));
}

std::vector<PaperResult> whole_paper() {
  std::vector<PaperResult> all;
  Progress progress("pinion simulate --paper");
  const auto add = [&](const char* kind, const Numbered& one) {
    progress.step(fmt::format("{} {}", kind, one.number));
    all.push_back(one.make());
  };
  for (const Numbered& figure : kFigures) add("figure", figure);
  for (const Numbered& table : kTables) add("table", table);
  progress.step("section 4.3");
  all.push_back(paper_overhead());
  return all;
}

Json to_json(const PaperResult& result) {
  Json rows = Json::array();
  for (const Row& row : result.rows)
    rows.push_back({{"what", row.what},
                    {"unit", row.unit},
                    {"paper", row.paper ? Json(*row.paper) : Json(nullptr)},
                    {"ours", row.ours ? Json(*row.ours) : Json(nullptr)}});
  return {{"schema", "pinion-paper-1"}, {"name", result.name}, {"title", result.title},
          {"kind", result.kind},        {"how", result.how},   {"rows", rows}};
}

std::string to_text(const PaperResult& result) {
  Table table({"", "unit", "paper", "ours"});
  const auto text = [](std::optional<double> value) { return value ? fmt::format("{:.2f}", *value) : "-"; };
  for (const Row& row : result.rows) table.add({row.what, row.unit, text(row.paper), text(row.ours)});
  return fmt::format("{}: {}\n{}{}: {}.\n", result.name, result.title, table.text(), result.kind, result.how);
}

}  // namespace pinion::cli
