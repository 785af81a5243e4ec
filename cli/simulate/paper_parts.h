// The common parts of the figures of the helper-threads paper (paper.h): workloads, the paper's settings, and
// rows that compare two strategies. Single-threaded.
#pragma once

#include <cstdint>
#include <string>

#include "cli/simulate/paper.h"
#include "simulate/simulation.h"

namespace pinion::cli {

simulate::Workload paper_workload(const std::string& name, simulate::Placement placement,
                                  const simulate::Machine& machine = {});
simulate::Workload paper_workload(const std::string& name, int ppn = 1, const std::string& where = "packed");

/// The paper's helper has a core of its own and watches its queue there; registration on its ConnectX as UCX
/// models that; predictor `shortest`, no time budget.
simulate::Settings paper_settings(RetentionKind retention);
/// `limit`: of a process; 0: none.
simulate::Result under(RetentionKind retention, const simulate::Workload& workload, std::uint64_t limit = 0);

inline double saved(double ours, double theirs) { return 100 * (1 - ours / theirs); }
inline double peak_of(const simulate::Result& result) { return static_cast<double>(result.registered.peak); }
inline double longer(double ours, double theirs) { return 100 * (ours / theirs - 1); }

struct PaperProgram {
  const char* name;
  const char* pattern;
};
/// Of Figures 5, 11 and Table 2; MG is in Figure 5 only.
inline constexpr PaperProgram kSixPrograms[] = {{"BT", "bt:D:4"}, {"LU", "lu:D:4"}, {"SP", "sp:D:4"},
                                                {"CG", "cg:D:4"}, {"FT", "ft:B:4"}, {"MG", "mg:D:4"}};

PaperResult paper_figure_2();
PaperResult paper_figure_3();
PaperResult paper_figure_5();
PaperResult paper_figure_6();
PaperResult paper_figure_8();
PaperResult paper_figure_9();
PaperResult paper_figure_10();
PaperResult paper_overhead();
PaperResult paper_table_1();

}  // namespace pinion::cli
