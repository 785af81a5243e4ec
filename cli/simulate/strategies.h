// The memory and cost of each strategy in a run, also under other limits and budgets: simulated from the
// run's own log. Bounded: of a long or wide run a part is simulated, and the text names it; other limits and
// budgets are tried as far as two seconds of processor time go, in a grid ten.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/choice.h"
#include "cli/report/report_json.h"
#include "cli/text.h"
#include "lease/engine_options.h"
#include "simulate/simulation.h"

namespace pinion::cli {

/// The memory that a process may register without a limit of the user's.
struct ProcessMemory {
  std::uint64_t bytes = 0;
  bool is_of_this_machine = true;  ///< as the log does not tell
};
/// `recorded_limit`: in force in a run with these options; 0: not known.
ProcessMemory process_memory(std::uint64_t recorded_limit, const Options& options, int ranks_of_node);
ProcessMemory process_memory(const runlog::Report& report, const Options& options);

/// The options that the simulator has too, less the NIC.
simulate::Settings simulated(const Options& options, const ProcessMemory& memory);

struct Strategies {
  struct Row {
    std::string retention;
    simulate::Result result;
  };
  /// A strategy with one more option.
  struct WhatIf {
    std::string retention, option, value;  ///< as a user would type them
    simulate::Result result;
  };
  std::string nic;              ///< "recorded": the run's own calls
  int ranks = 0, of_ranks = 0;  ///< those simulated, and those that left a log
  double covers_seconds = 0;    ///< of the run; 0: all
  std::vector<Row> rows;        ///< each strategy, with the run's own limits
  std::vector<WhatIf> what_if;  ///< of each strategy: limits from the least on
};

/// Empty for a run without transfers, and for one that cannot be simulated here (a line on stderr).
std::optional<Strategies> strategies_of(const runlog::Report& report, const std::vector<std::string>& logs);

/// Lets both have one figure for each: leave-pinned as computed from the run's transfers, and an oracle that
/// holds no more than on-demand, which is possible. Of a run that is simulated in part, both stay.
void reconcile(runlog::Report& report, Strategies& strategies);
/// Bounds the oracle's figures by those of an on-demand run that refused nothing.
void bound_oracle(runlog::RegisteredBytes& bytes, const simulate::Result& on_demand);

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

/// A way to run the program: the options of a run like it, and its simulated result.
struct Way {
  Options options;
  const simulate::Result* result;
};
/// Its figures, to choose by.
WayFigures figures_of(const simulate::Result& result);
/// All rows, in their order. `options`: of the recorded run.
std::vector<Way> ways_of(const Strategies& strategies, const Options& options);

/// Returns the ranks of a node, one at least.
int ranks_of_node(const simulate::Result& result);

/// The most bytes of a process of the run: that its transfers need at one time, and that it ever used.
struct Needs {
  std::uint64_t least = 0, most = 0;
};
Needs needs_of(const runlog::Report& report);

/// An option that a strategy is tried with beside those of the run.
struct WayChange {
  RetentionKind retention;
  std::string option, value;
};
/// Strategies under limits, as a user may set them, the most useful ones first: to try for a program whose
/// transfers need `least` bytes of a process at one time, and `most` in all.
std::vector<WayChange> ways_to_try(std::uint64_t least, std::uint64_t most);

/// Tells whether another simulation, about as long as the longest so far, ends within so many seconds of
/// processor time.
class Allowance {
 public:
  explicit Allowance(int seconds) : seconds_(seconds) {}
  bool allows();

 private:
  int seconds_;
  std::clock_t start_ = std::clock(), last_ = start_, longest_ = 0;
};

/// Names the source of the tables' figures.
std::string strategies_title(const Strategies& strategies);
/// The report's own strategy has the figures of the run.
Table strategies_table(const Strategies& strategies, const runlog::Report& report);
extern const char* const kWhatIfMeaning;
/// Lists the strategies with other limits and budgets that no other one beats.
Table what_if_table(const Strategies& strategies);
Table grid_table(const WhatIfGrid& grid);
/// The tables as lines, each after `indent`.
std::string strategies_text(const Strategies& strategies, const runlog::Report& report,
                            const std::string& indent);
std::string what_if_text(const Strategies& strategies, const std::string& indent);
Json to_json(const Strategies& strategies);

}  // namespace pinion::cli
