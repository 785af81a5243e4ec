// This process's place in the job, and its command line. Stateless; reads the environment and /proc, outside
// of hooks.
#pragma once

#include <cstdint>
#include <string>

namespace pinion {

/// The process's position in its job; -1 where unknown.
struct JobPlace {
  int rank = -1;
  int ranks = -1;
  int local_ranks = -1;
};

/// Reads the launcher's environment variables: mpirun of Open MPI, hydra, srun. -1 where they are missing.
JobPlace job_place();

/// The rank of another process of this user; -1: it has none, or has ended.
int rank_of(int process);

/// The process that started this one as a rank here: mpirun, the daemon that it has on this node, slurmstepd.
/// 0: this process has no rank.
int launcher_of_rank();

/// A number that all processes of a job on this node have, and no other's: made from launcher_of_rank(); from
/// this process where it has no rank.
std::uint64_t job_key();

/// The variable by which `pinion run` and `pinion compare` around a launcher name a run.
inline constexpr const char* kRunVariable = "PINION_RUN";

/// A number that all processes of a run have, on all its nodes: made from the name that `pinion run`, or else
/// the launcher, has given it. 0: it has none.
std::uint32_t run_key();

/// The processes that share a limit of the node, or its cores: those of a job, or all of the user's that have
/// no rank.
std::uint64_t node_key();

/// The most processes that share the node's table, as the launcher gives it; 0: unknown.
int most_on_node();

/// The path of the process's executable; empty where it cannot be found out. A script's is its interpreter's.
std::string executable_path();

/// The command that started the process, as a shell takes it.
std::string command_line();

}  // namespace pinion
