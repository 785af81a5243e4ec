// Reads run logs as untrusted input: for any file, the outcome is an error with its path and the reason, or
// Logs whose every value is in range. Memory is bounded by the file's real contents, and by kMaxEvents a
// process. Pure functions over files; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "runlog/format.h"

namespace pinion::runlog {

/// Most events that are read of one process; those beyond are counted as dropped.
constexpr std::uint64_t kMaxEvents = 16 << 20;

/// The log of one process.
struct Log {
  std::string path;         ///< of the file, with perhaps other processes' logs
  bool written_to = false;  ///< a process still writes to the file, as far as its lock shows
  ProcessHeader header;
  LiveState live;
  std::vector<DomainEntry> domains;  ///< by number; events may be of further ones where the run was killed
  std::vector<ModuleEntry> modules;
  std::vector<SiteEntry> sites;
  std::vector<Event> events;

  /// The end of the run as far as recorded: a killed process's last event may be later than its state.
  std::int64_t last_ns() const;
  /// Returns whether every event of the run is here.
  bool all_events() const;
};

/// Reads each path: a file, or a directory with all its *.plog files; calls `f` with the log of each process
/// in them, one after another, so that no two need be in memory. Processes that were killed before they had
/// logged anything are left out. Finding zero logs is an error, and so are logs of two runs (one_run.h).
Error for_each_log(const std::vector<std::string>& paths, const std::function<void(Log&&)>& f);

/// Reads logs without call sites, modules and events, which count as dropped: in a time that is independent
/// of the run's length.
Error for_each_state(const std::vector<std::string>& paths, const std::function<void(Log&&)>& f);

/// Reads all logs whole.
Error read_logs(const std::vector<std::string>& paths, std::vector<Log>& logs);

}  // namespace pinion::runlog
