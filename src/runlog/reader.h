// Reads run logs as untrusted input: whatever a file holds, the outcome is an error with its path and the
// reason, or a Log whose every value is in range. Memory is bounded by what the file really holds, and by
// kMaxEvents. Pure functions over files; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "runlog/format.h"

namespace pinion::runlog {

/// Most events that are read of one file; those beyond are counted as dropped.
constexpr std::uint64_t kMaxEvents = 16 << 20;

struct Log {
  std::string path;
  FileHeader header;
  LiveState live;
  std::vector<SiteEntry> sites;
  std::vector<Event> events;

  /// The end of the run as far as the file tells: a killed process's last event may be later than its state.
  std::int64_t last_ns() const;
  /// Whether every event of the run is here.
  bool all_events() const;
};

Error read_log(const std::string& path, Log& log);

/// Reads each path: a file, or a directory with all its *.plog files. No logs at all is an error.
Error read_logs(const std::vector<std::string>& paths, std::vector<Log>& logs);

}  // namespace pinion::runlog
