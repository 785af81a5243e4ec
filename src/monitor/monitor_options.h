// The options of memory events. Filled before threads start, then only read.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/options.h"

namespace pinion {

/// The monitors that can see memory events (monitor/monitor.h). Users choose among the automatic one and
/// those that stand alone; the others are its choices, and those of tests and of `pinion doctor`.
enum class MonitorKind : std::uint8_t {
  automatic,
  libc,
  libc_userfaultfd,
  symbols,
  symbols_userfaultfd,
  userfaultfd,
  brackets
};

struct MonitorOptions {
  MonitorKind monitor = MonitorKind::automatic;
  bool feed_libfabric = true;
  bool keep_shared_files = false;
};

OptionTable<MonitorOptions> monitor_options();
const char* to_string(MonitorKind kind);
/// Any kind, by its name. The error names all.
Error find_monitor(std::string_view name, MonitorKind& kind);

}  // namespace pinion
