// The memory of the hugepage heap of a run's processes (placement/figures_file.h), as text and JSON.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "placement/figures_file.h"

namespace pinion::cli {

/// Returns the directories of the logs, each once.
std::set<std::string> directories_of(const std::vector<std::string>& logs);
/// Sums over the processes of these logs' directories.
PlacementFigures hugepages_of(const std::vector<std::string>& logs);
/// One sentence; empty where no process used the heap.
std::string hugepages_text(const PlacementFigures& figures);
/// Null where no process used the heap.
Json to_json(const PlacementFigures& figures);

}  // namespace pinion::cli
