// Container runtimes as the command of a run: what a container has to have of the node for Pinion to be in
// its programs. Ordinary code, any thread.
#pragma once

#include <string>

#include "cli/run/launch.h"

namespace pinion::cli {

/// For apptainer and singularity, adds the variables that bind this installation and `logs` in the container
/// and preload Pinion there. For docker and podman, which take these on the command line alone, prints the
/// words to type. Other commands are left alone.
void reach_into_container(Environment& environment, const CommandLine& command, const std::string& logs);

}  // namespace pinion::cli
