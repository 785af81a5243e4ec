// The MPI front's life: from MPI_Init to MPI_Finalize. Called by the wrappers of those; anything else asks
// Engine::running().
#pragma once

namespace pinion::mpi {

/// After MPI_Init returned: starts the engine with the environment's options, unless they are `off`. A bad
/// option ends the process with status 2 and one line, as the command would.
void begin_session();
/// Before MPI_Finalize: returns what requests still hold and ends the run.
void end_session();

}  // namespace pinion::mpi
