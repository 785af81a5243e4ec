// What `pinion run` and `pinion compare` tell the user about a run, beside the program's own output.
// Ordinary code, one thread.
#pragma once

#include <string>
#include <vector>

#include "cli/run/preload_reach.h"
#include "lease/engine_options.h"

namespace pinion::cli {

/// Prints on standard error: standard output is the program's.
void tell(const std::string& text);

/// Lets programs pin what the hard limit allows, if this retention registers memory. Returns what there is
/// to tell.
std::string raise_memlock(const Options& options);

/// Says that a run left no log, and why that may be. `status` is the command's: a failed one is reason
/// enough, and `unreached` are its programs that the preload does not reach.
std::string no_log_text(const Options& options, const std::vector<Unreached>& unreached, int status);

}  // namespace pinion::cli
