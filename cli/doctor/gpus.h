// The GPUs of this machine, as copies of host memory meet them: for `pinion doctor`. CUDA is loaded in a
// child process with a time limit, since a driver may hang or crash. Ordinary code of the command.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/report/report_json.h"

namespace pinion::cli {

/// Measures all GPUs, in this process, which ends by a signal after 20 s. {"refused": why}, or {"driver",
/// "gpus": [{...}]}.
Json measure_gpus();
/// The same in a child process.
Json gpus_here();

/// A finding for each GPU; one where there is none.
std::vector<Finding> gpu_findings(const Json& gpus);

/// The costs of registering for the first GPU, as a file for `--nic`. Throws Failure where there is none.
void write_gpu_costs(const Json& gpus, const std::string& path);

}  // namespace pinion::cli
