// MPI programs that benches start: where they and their launchers are, and one run of them. Single-threaded.
#pragma once

#include <map>
#include <string>

#include "cli/command.h"

namespace pinion::cli {

/// A family of MPI with its build of bench/programs/p2p.cpp.
struct MpiBench {
  const char* family;
  CommandLine launch;   ///< the launcher with its options
  std::string program;  ///< libexec/pinion/p2p-<family>
};

/// The file of a program of this name, as a shell finds it; empty: there is none.
std::string found_in_path(const std::string& name);

/// The families whose launcher and program are here.
std::vector<MpiBench> mpi_benches();

/// The note of a bench that found no family.
extern const char* const kNoMpi;

/// Starts the program in `ranks` ranks with `arguments` behind their number, each rank below `under`. Returns
/// nanoseconds a call by case. Throws Failure with the launcher's first words.
std::map<std::string, double> run_mpi_bench(const MpiBench& mpi, int ranks, const CommandLine& under,
                                            const CommandLine& arguments = {});

/// Runs a program, and returns its lines of a name and a value. Throws Failure with its first words.
std::map<std::string, double> run_for_figures(const CommandLine& command);

/// `pinion run` with these options.
CommandLine under_pinion(const CommandLine& options = {});

}  // namespace pinion::cli
