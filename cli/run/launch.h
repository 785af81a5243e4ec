// Starting programs under Pinion: the preload library, the environment, signals and exit statuses.
#pragma once

#include <map>
#include <string>

#include "cli/command.h"
#include "lease/engine_options.h"

namespace pinion::cli {

/// The preload library beside this command. Throws UsageError where it is missing.
std::string preload_library();

/// Whether a launcher (mpirun, srun) started this process as one rank of many.
bool inside_launcher();

/// The variables that a program gets beside the environment of this process.
using Environment = std::map<std::string, std::string>;

/// The library of symbols for machines that forbid patching code; the same.
std::string symbols_library();

/// The library of malloc's functions for `--hugepages` and `--preregister`; the same.
std::string heap_library();

/// The variables of a program that runs under Pinion with these options: PINION with all of them, from
/// file, environment and flags alike, so that ranks elsewhere get them resolved; and LD_PRELOAD, which
/// ASAN_OPTIONS lets come before AddressSanitizer's runtime. Where Pinion may act below libraries, also
/// kCachesOffVariable.
Environment with_pinion(const Options& options);

/// An LD_PRELOAD of with_pinion() for those who take `$` for something of their own: no loader completes it.
std::string with_plain_paths(std::string preloads);

/// Takes Pinion out of LD_PRELOAD, where a `pinion run` around the launcher has put it.
Environment without_preload();

/// A name for a run that starts here, for kRunVariable in the environment of its processes: their logs are
/// those of one run wherever the launcher puts them.
std::string new_run_name();

/// Becomes the program. Returns only where that failed, with the status that shells give (127: not found,
/// 126: not executable), after one line on stderr.
int execute(const CommandLine& command, const Environment& environment);

/// Runs the program as a child, passes signals on, waits for it, and returns its status as shells give it
/// (128 + signal). Where `output` is given, the program's standard output and error go to that file.
int run_and_wait(const CommandLine& command, const Environment& environment, const std::string& output = {});

}  // namespace pinion::cli
