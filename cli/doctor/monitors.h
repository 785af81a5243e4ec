// The abilities of each memory monitor on this machine, tried out: for `pinion doctor`.
#pragma once

#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "cli/run/launch.h"
#include "monitor/monitor_options.h"

namespace pinion::cli {

/// The standard output of `command` in this environment.
std::string output_of(const CommandLine& command, const Environment& environment);

struct MonitorFinding {
  struct Event {
    std::string name;
    std::string state;  ///< seen, not seen, never seen, nothing to see
    std::string why;    ///< it was not
  };
  std::string name;
  std::string refused;    ///< why it cannot be had here; empty where it can
  bool complete = false;  ///< registrations are kept under it
  std::vector<Event> events;
  std::vector<std::string> blind_spots;
};

Json to_json(const MonitorFinding& finding);

/// Tries one monitor, in this process.
MonitorFinding try_monitor(MonitorKind kind);
/// Tries all of them; those of preloaded symbols in a process of their own.
std::vector<MonitorFinding> try_all_monitors();
/// The one of them that `auto` chooses here.
const MonitorFinding& chosen_by_auto(const std::vector<MonitorFinding>& findings);

}  // namespace pinion::cli
