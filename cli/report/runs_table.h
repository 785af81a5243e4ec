// All runs whose logs lie in some directories, one line each: those that `pinion run --log DIR` has kept in
// DIR, or all jobs of a cluster. Ordinary code; reads states of logs, not their events.
#pragma once

#include <ctime>
#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "runlog/analysis.h"

namespace pinion::cli {

struct KeptRun {
  std::string directory;
  std::time_t written = 0;  ///< its logs were last
  bool running = false;
  runlog::Report report;
};

/// Searches the directories, and those in them. The latest run comes first. `unread` gets a message for each
/// log that cannot be read.
std::vector<KeptRun> runs_in(const std::vector<std::string>& directories, std::vector<std::string>& unread);
/// Counts the directories with logs that are in these directories, but not these themselves.
std::size_t folders_with_logs(const std::vector<std::string>& directories);

std::string runs_text(const std::vector<KeptRun>& runs);
Json runs_json(const std::vector<KeptRun>& runs);

}  // namespace pinion::cli
