// The figures and tables of Li et al., "Scalable memory registration for high performance networks using
// helper threads" (CF'11), simulated: the paper's value beside ours. docs/paper.md and docs/paper-figures.md
// explain the differences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/report_json.h"

namespace pinion::cli {

struct PaperResult {
  std::string name, title, how;
  struct Row {
    std::string what, unit;
    std::optional<double> paper;  ///< absent: the paper gives no number
    std::optional<double> ours;   ///< absent: not simulated, or not measured
  };
  std::vector<Row> rows;
  std::string kind = "Simulated";
};

/// Throw UsageError for numbers that are not simulated.
PaperResult paper_figure(int number);
PaperResult paper_table(int number);
PaperResult paper_section(const std::string& number);
/// All of the above, in the paper's order.
std::vector<PaperResult> whole_paper();

Json to_json(const PaperResult& result);
std::string to_text(const PaperResult& result);

}  // namespace pinion::cli
