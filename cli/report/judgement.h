// The verdict on a run from its logs, with what it is made from. Ordinary code; reads the logs again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/arena.h"
#include "cli/report/libraries_part.h"
#include "cli/report/verdict.h"
#include "cli/simulate/strategies.h"
#include "runlog/analysis.h"

namespace pinion::cli {

struct Judgement {
  std::optional<Strategies> simulated;  ///< nothing where the run cannot be simulated
  std::optional<LibrariesPart> held_by_libraries;
  Verdict verdict;

  const Strategies* strategies() const { return simulated ? &*simulated : nullptr; }
  const LibrariesPart* held() const { return held_by_libraries ? &*held_by_libraries : nullptr; }
};

/// Simulates the run of `report`, which gets the figures that only this gives, and judges it. `program` is as
/// the user would type it.
Judgement judge(runlog::Report& report, const std::vector<std::string>& logs, const ArenaFigures& arena,
                const TypedProgram& program, const SiteText& site_text);

}  // namespace pinion::cli
