#include "cli/report/judgement.h"

namespace pinion::cli {

Judgement judge(runlog::Report& report, const std::vector<std::string>& logs, const ArenaFigures& arena,
                const TypedProgram& program, const SiteText& site_text) {
  Judgement judgement;
  judgement.simulated = strategies_of(report, logs);
  if (judgement.simulated) reconcile(report, *judgement.simulated);
  judgement.held_by_libraries = held_by_libraries(report, logs);
  judgement.verdict = arena.served
                          ? arena_verdict(report, arena)
                          : verdict_of(report, judgement.strategies(), judgement.held(), program, site_text);
  return judgement;
}

}  // namespace pinion::cli
