// The verdict on a run: two or three plain sentences from its figures, and advice with the command to type.
// The simulator's what-if over the run's own log (strategies.h) gives the figures of other settings.
// Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/report/choice.h"
#include "cli/report/libraries_part.h"
#include "cli/report/report_json.h"
#include "cli/simulate/strategies.h"
#include "lease/engine_options.h"
#include "runlog/analysis.h"

namespace pinion::cli {

struct Advice {
  std::string text;
  std::string command;  ///< to type
};

/// A way to run the program that a verdict chose among.
struct JudgedWay {
  std::string name;
  WayFigures figures;
};

struct Verdict {
  std::vector<std::string> sentences;
  std::vector<Advice> advice;
  std::vector<JudgedWay> ways;
  /// The recommended way, or "keep what you have", "nothing to gain", "too short to tell"; empty: nothing was
  /// chosen.
  std::string choice;
  std::string library_choice;  ///< the way that a variable of the MPI library stands for; empty: none
};

/// The program of a run as the user would type it, around `pinion run`: "mpirun -n 2 " and "./app".
struct TypedProgram {
  std::string before, after;
};
/// Reconstructs the command line as far as a log shows it.
TypedProgram typed_program(const std::string& command, int ranks);

/// The name of a call site, for people.
using SiteText = std::function<std::string(const runlog::CallSite&)>;

/// `strategies`: null where nothing could be simulated. `held`: by libraries; null: not known.
Verdict verdict_of(const runlog::Report& report, const Strategies* strategies, const LibrariesPart* held,
                   const TypedProgram& program, const SiteText& site_text);

/// Sentences as a paragraph and the advice below it; each line begins with `indent` and has 100 columns at
/// most, but for commands.
std::string to_text(const Verdict& verdict, const std::string& indent);
/// {sentences[], advice[{text, command}], choice, library_choice, ways[{way, figures}]}
Json to_json(const Verdict& verdict);

}  // namespace pinion::cli
