// Starts the processes of a job: those of a launcher (mpirun, srun), or forked here. Called before any thread
// exists.
#pragma once

#include <functional>

#include "job.h"

namespace gas {

/// Runs `part` in each of `processes` children that meet in a directory of their own, and waits for them; a
/// failed one ends the others. 0: in this process, with the launcher's place, or alone. Returns the exit
/// status.
int launch(unsigned processes, const std::function<int(const Place&)>& part);

}  // namespace gas
