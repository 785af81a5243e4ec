// The part of a report on copies between host memory and GPUs. Pure functions.
#pragma once

#include <string>

#include "cli/report/report_json.h"
#include "cli/text.h"
#include "runlog/analysis.h"

namespace pinion::cli {

constexpr const char* kCopiesTitle = "Copies to and from GPUs, from call to return";
/// A row for each way and direction that was used.
Table gpu_copies_table(const runlog::GpuCopies& copies);
/// One sentence: the copies that went faster, and the time saved where the run's own plain copies show it.
std::string gpu_copies_text(const runlog::GpuCopies& copies);
Json to_json(const runlog::GpuCopies& copies);

}  // namespace pinion::cli
