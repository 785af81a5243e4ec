// A report as metrics in Prometheus' text format, for a node exporter's textfile collector. Pure function.
#pragma once

#include <string>

#include "runlog/analysis.h"

namespace pinion::cli {

std::string prometheus_text(const runlog::Report& report);

}  // namespace pinion::cli
