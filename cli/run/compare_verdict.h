// The verdict of `pinion compare`: what its rows show, with noise named, and the recommendation among all
// ways that are simulated from a run's log. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/report/recommendation.h"
#include "cli/report/verdict.h"

namespace pinion::cli {

/// A strategy of `pinion compare`: medians.
struct ComparedRow {
  std::string name;
  runlog::RegisteredBytes bytes;                ///< 0: it left no log
  std::uint64_t refused;                        ///< transfers
  double seconds, least_seconds, most_seconds;  ///< of the run
  double added_seconds;                         ///< by registration, as the logs account for it
  std::size_t runs;
  std::string command;  ///< to type
};

/// `situation`: ways simulated from the log of a run; none: the rows themselves are chosen from.
Verdict verdict_of(const std::vector<ComparedRow>& rows, const Situation& situation);

}  // namespace pinion::cli
