// The memory and cost of each strategy in a run, and of the helper under other limits and budgets: simulated
// from the run's own log. Bounded: of a long or wide run a part is simulated, and the text names it; other
// limits and budgets are tried as far as two seconds of processor time go, in a grid ten.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "cli/text.h"
#include "engine/engine_options.h"
#include "simulate/simulation.h"

namespace pinion::cli {

/// The options that the simulator has too, less the NIC.
simulate::Settings simulated(const Options& options);

struct Strategies {
  struct Row {
    std::string retention;
    simulate::Result result;
  };
  /// The helper with one more option.
  struct WhatIf {
    std::string option, value;  ///< as a user would type them
    simulate::Result result;
  };
  std::string nic;              ///< "recorded": the run's own calls
  int ranks = 0, of_ranks = 0;  ///< those simulated, and those that left a log
  double covers_seconds = 0;    ///< of the run; 0: all
  std::vector<Row> rows;        ///< on-demand, leave-pinned, helper; lru where the run had it
  std::vector<WhatIf> what_if;  ///< limits from the least on, then time budgets
};

/// Empty for a run without transfers, and for one that cannot be simulated here (a line on stderr).
std::optional<Strategies> strategies_of(const runlog::Report& report, const std::vector<std::string>& logs);

/// Null where it was not simulated.
const simulate::Result* row_of(const Strategies* strategies, RetentionKind kind);

/// Strategies under limits: a line each, from the least limit on; the last point is without one.
struct WhatIfGrid {
  struct Point {
    std::uint64_t limit;  ///< of a process; 0: none
    simulate::Result result;
  };
  struct Line {
    std::string name;
    std::vector<Point> points;
  };
  std::vector<Line> lines;
  bool is_whole = true;  ///< else some are missing: ten seconds of processor time were over
};
/// Makes the grid of a run that strategies_of() can simulate.
WhatIfGrid what_if_grid(const runlog::Report& report, const std::vector<std::string>& logs);

/// Lines, each after `indent`: of the strategies; of the helper under other limits and budgets.
/// The source of the tables' figures.
std::string strategies_title(const Strategies& strategies);
Table strategies_table(const Strategies& strategies);
Table what_if_table(const Strategies& strategies);
Table grid_table(const WhatIfGrid& grid);
std::string strategies_text(const Strategies& strategies, const std::string& indent);
std::string what_if_text(const Strategies& strategies, const std::string& indent);
Json to_json(const Strategies& strategies);

}  // namespace pinion::cli
