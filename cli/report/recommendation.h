// The recommendation among all simulated ways to run a program (simulate/strategies.h): keep the present one,
// nothing to gain, or a better way with the command to type. A variable of the MPI library comes first where
// it gives the same. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/choice.h"
#include "cli/report/verdict.h"
#include "cli/simulate/strategies.h"

namespace pinion::cli {

/// A program whose ways are simulated.
struct Situation {
  std::string name;       ///< of the program, among several; else empty
  std::string simulated;  ///< "simulated from this run's log with NIC 'connectx'"
  TypedProgram program;
  std::vector<Way> ways;
  std::optional<Options> present;  ///< options of the recorded run; empty: leave-pinned, as MPI libraries
  double least_gain = 0;           ///< bytes of a process
  double default_gain = 0;         ///< those of a run without `--minimum-gain`
  bool gain_is_of_this_machine = false;  ///< it is a share of this machine's memory, as the log tells none
  bool memory_short = false;
  bool has_library = false;            ///< an MPI library's own registration cache would do as well
  std::optional<std::uint64_t> pools;  ///< bytes that the library keeps beside its cache; empty: not known
  bool acts_here = true;               ///< else advice is for nodes where a NIC registers
};

/// A device of Pinion's own beside an MPI library is a trial: the library's registrations stay.
bool is_trial(const runlog::Report& report);

/// The options of a recorded run as advice may have them: without the device of a trial.
Options options_to_advise(const runlog::Report& report);

/// The situation of a recorded run. `strategies`: null where nothing could be simulated. `held`: by
/// libraries; null: not known.
Situation situation_of(const runlog::Report& report, const Strategies* strategies, const LibrariesPart* held,
                       const TypedProgram& program);

/// The least bytes of a process whose release is worth a change, by `--minimum-gain`. `limit`: in force.
double least_gain_of(const Options& options, std::uint64_t limit);

/// "leave-pinned under a limit of 64.0 MiB a process"
std::string way_text(const Options& options);

/// Adds sentences, advice and the choice to a verdict. Situations without ways add nothing.
void recommend(Verdict& verdict, const Situation& situation);

/// Memory of a way beside leave-pinned's: "64.0 MiB at most instead of 96.0 MiB (-33 %), 10.0 MiB on ..."
std::string instead_text(const runlog::RegisteredBytes& held, double leave_pinned_peak,
                         double leave_pinned_mean);
/// "for 1.20 ms of 2.00 s (0.06 %)"
std::string cost_text(double added, double seconds);

}  // namespace pinion::cli
