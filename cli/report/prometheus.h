// A report as metrics in Prometheus' text format, for a node exporter's textfile collector.
#pragma once

#include <string>

#include "base/clock.h"
#include "runlog/analysis.h"

namespace pinion::cli {

/// Pure function.
std::string prometheus_text(const runlog::Report& report);

/// The metrics of a run in progress: a file, written again and again from the state of its logs. One thread.
class RunMetrics {
 public:
  /// Writes the file, which has no process yet. Throws UsageError where the path is no good.
  RunMetrics(std::string path, std::string logs);
  /// Returns the time until the next call. A file that cannot be written any more is named once, on standard
  /// error.
  Duration refresh();

 private:
  void write(const std::string& text);

  const std::string path_, logs_;
  bool failed_ = false;
};

}  // namespace pinion::cli
