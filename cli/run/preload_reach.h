// Programs that the preload, or its front for libibverbs, does not reach, judged by their files. `pinion run`
// and `pinion doctor` print that beforehand. Ordinary code, any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace pinion::cli {

/// A program that a command starts, and that the preload does not reach.
struct Unreached {
  std::string line;  ///< "FILE: WHY"
  bool is_foreign;   ///< of musl, or of 32 bits: no library of Pinion's can be loaded there
};

/// Looks at the files of the programs that the command starts: its own, and those of launchers (mpirun, srun,
/// env, nice, taskset, numactl, `sh -c` and the like), and those that a line of a shell's script among them
/// names. Other words are data.
std::vector<Unreached> unreached_programs(const CommandLine& command);

/// Finds the program as execvp() does; empty if there is none.
std::string found_by_path(const std::string& name);

}  // namespace pinion::cli
