// The verdict on a run: two or three plain sentences from its figures, and advice with the command to type.
// The simulator's what-if over the run's own log (strategies.h) gives the figures of other settings.
// Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "cli/simulate/strategies.h"
#include "engine/engine_options.h"
#include "runlog/analysis.h"

namespace pinion::cli {

struct Advice {
  std::string text;
  std::string command;  ///< to type
};

struct Verdict {
  std::vector<std::string> sentences;
  std::vector<Advice> advice;
};

/// The program of a run as the user would type it, around `pinion run`: "mpirun -n 2 " and "./app".
struct TypedProgram {
  std::string before, after;
};
/// Reconstructs the command line as far as a log shows it.
TypedProgram typed_program(const std::string& command, int ranks);

/// The name of a call site, for people.
using SiteText = std::function<std::string(const runlog::CallSite&)>;

/// `strategies`: null where nothing could be simulated.
Verdict verdict_of(const runlog::Report& report, const Strategies* strategies, const TypedProgram& program,
                   const SiteText& site_text);

/// A strategy of `pinion compare`: medians.
struct ComparedRow {
  std::string name;
  runlog::RegisteredBytes bytes;
  double seconds, least_seconds, most_seconds;  ///< of the run
  double added_seconds;                         ///< by registration, as the logs account for it
  std::string command;                          ///< to type
  std::string logs;                             ///< of one run
};
Verdict verdict_of(const std::vector<ComparedRow>& rows);

/// A row of `pinion simulate`, of one workload.
struct SimulatedRow {
  Options options;  ///< of a run like it
  const simulate::Result* result;
};
/// Adds to a verdict; `name`: of the workload, empty where there is one.
void judge(Verdict& verdict, const std::string& name, const TypedProgram& program,
           const std::vector<SimulatedRow>& rows);

/// Sentences as a paragraph and the advice below it; each line begins with `indent` and has 100 columns at
/// most, but for commands.
std::string to_text(const Verdict& verdict, const std::string& indent);
/// {sentences[], advice[{text, command}]}
Json to_json(const Verdict& verdict);

}  // namespace pinion::cli
