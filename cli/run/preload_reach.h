// Programs that the preload, or its front for libibverbs, does not reach, judged by their files. `pinion run`
// and `pinion doctor` print that beforehand. Ordinary code, any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace pinion::cli {

/// A clause, such as "it is linked statically, ...". Empty for files that are reached as far as they show,
/// for scripts, and for files that cannot be read.
std::string why_unreached(const std::string& file);

/// "FILE: WHY" for the command's program, and for each of its words that is the path of a program: a
/// launcher's.
std::vector<std::string> unreached_programs(const CommandLine& command);

/// unreached_programs() whose dynamic loader fails, or complains, where Pinion is preloaded: programs of
/// musl, or of 32 bits.
std::vector<std::string> unloadable_programs(const CommandLine& command);

}  // namespace pinion::cli
