// The MPI front's life: from the first MPI_Init or MPI_Session_init to the last MPI_Finalize or
// MPI_Session_finalize. Called by the wrappers of those; everything else asks least_bytes().
#pragma once

#include <atomic>
#include <cstdint>

namespace pinion::mpi {

constexpr std::uint64_t kNothing = ~std::uint64_t{0};

/// Written by the session. Transfers of fewer bytes pass by; kNothing: all do, because the engine is stopped,
/// or because the program has switched recording off. Every call reads this one word.
inline std::atomic<std::uint64_t> g_least_bytes{kNothing};
/// The least bytes, whether or not recording is switched off.
inline std::atomic<std::uint64_t> g_threshold{kNothing};

/// Begins a session after an initialization returned: the first one starts the engine with the environment's
/// options, unless they are `off` or leave this rank out. A bad option ends the process with status 2 and one
/// line, as the command would. `spawned`: by MPI_Comm_spawn, so that the rank is not one of the launcher's
/// job.
void begin_session(bool spawned);
/// Whether transfers within a node are left out (option intranode). Every rank answers as the others do, also
/// one that Pinion leaves out: finding the nodes takes all of them.
bool intranode_is_off();
/// Ends a session before a finalization: the last one returns all leases and ends the run.
void end_session();
/// MPI_Pcontrol: recording goes off and on. Earlier leases are returned in their time.
void switch_recording(bool on);

}  // namespace pinion::mpi
