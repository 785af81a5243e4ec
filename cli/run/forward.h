// Environment variables on their way to ranks on other nodes: the settings by which each launcher forwards
// them, wherever it stands (on the command line of `pinion run`, or in a script that it starts). The user's
// own settings stay as they are.
//
//   Open MPI  forwards OMPI_* alone. Its own ways to forward more exclude each other (mpirun -x and
//             mca_base_env_list: 4.x refuses the two together), so neither is Pinion's to take. But every
//             node can start ranks by a command (4: orte_fork_agent, 5: exec-agent): `pinion run --inherit
//             NAME=VALUE...`. Where that command is missing, Open MPI reports it once, with the node's name.
//   hydra     (MPICH, Intel MPI, MVAPICH) forwards all, but for options of the kind -genvlist.
//   srun      forwards all, but for --export and SLURM_EXPORT_ENV.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/run/launch.h"

namespace pinion::cli {

/// Adds settings to `environment` and `command`, so that launchers forward `environment` to ranks on other
/// nodes.
void forward_to_ranks(Environment& environment, CommandLine& command);

/// Whether the command is mpirun, mpiexec or srun.
bool is_launcher(const CommandLine& command);

/// Whether the command is a launcher that hands its environment to ranks on other nodes: srun, or an mpiexec
/// with hosts on its command line.
bool hands_environment_on(const CommandLine& command);

/// In a rank that was started by Open MPI's agent: sets the variables that `inherited` names, in the agent's
/// own spelling. Options that this rank has in PINION already (mpirun -x PINION=...) come after the inherited
/// ones.
void inherit(const std::vector<std::string>& inherited);

}  // namespace pinion::cli
