// Checks before a run that it can serve. Ordinary code, any thread.
#pragma once

#include <cstdint>

#include "cli/command.h"
#include "lease/engine_options.h"

namespace pinion::cli {

/// Returns how many ranks the options of a launcher ask for (mpirun, srun); 0: they do not tell.
std::uint64_t ranks_asked_for(const CommandLine& command);

/// Throws UsageError if --front verbs meets no NIC, or --only-ranks no rank of the job. Programs that a
/// launcher starts on other nodes may meet a NIC there.
void check_beforehand(const Options& options, const CommandLine& command);

}  // namespace pinion::cli
