// Commands as a user would type them. Pure functions.
#pragma once

#include <string>

#include "base/shown_text.h"
#include "cli/command.h"
#include "lease/engine_options.h"

namespace pinion::cli {

using pinion::quoted;
/// All words, quoted.
std::string quoted(const CommandLine& command);

/// "pinion run --limit 2G -- ": its options differ from the defaults.
std::string typed_run(const Options& options);

}  // namespace pinion::cli
