// Who this process is: its place in the job, and its command line. Stateless; reads the environment and
// /proc, not from hooks.
#pragma once

#include <string>

#include "engine/engine.h"

namespace pinion {

/// What the launcher says in the environment: mpirun of Open MPI, hydra, srun. -1 where it says nothing.
JobPlace job_place();

/// The command that started the process, its arguments separated by spaces.
std::string command_line();

}  // namespace pinion
