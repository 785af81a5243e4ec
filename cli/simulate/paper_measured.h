// The helper-threads paper's Figures 2, 9 and 10 and section 4.3 from real transfers: rows of
// `pinion bench transfers --json`. The file is untrusted. Single-threaded.
#pragma once

#include <string>

#include "cli/simulate/paper.h"

namespace pinion::cli {

// `path`: the file. Throw UsageError where it cannot be read, or lacks the rows of the figure.
PaperResult measured_figure(int number, const std::string& path);
PaperResult measured_section(const std::string& number, const std::string& path);

}  // namespace pinion::cli
