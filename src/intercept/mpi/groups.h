// The participants of a call: sizes, roots and neighbours, and which processes are on this node. Any thread
// that may call MPI; never from hooks. A mutex is held while a communicator's members are found, by calls of
// MPI that ask no other process.
#pragma once

#include <atomic>

#include "intercept/mpi/library.h"

namespace pinion::mpi::PINION_MPI_ABI {

/// Processes on the other side of a collective: the remote group of an intercommunicator, else all.
Aint group_size(Comm comm);
/// Processes on this side.
Aint local_size(Comm comm);
int own_rank(Comm comm);
/// Whether this process is the root of a rooted collective.
bool is_root(Comm comm, int root);
/// Whether it has a part of its own beside the root's: all of an intracommunicator, the root's other side of
/// an intercommunicator.
inline bool is_leaf(int root) { return root != kRoot && root != kProcNull; }

/// The neighbours of this process in a communicator with a topology; -1 where there is none.
struct Neighbours {
  Aint sources = -1, destinations = -1;
};
Neighbours neighbours(Comm comm);

/// Programs may pass null for the array, and MPI reports it.
template <class N>
Aint own_count(const N* counts, Comm comm) {
  const int rank = own_rank(comm);
  return counts && rank >= 0 ? static_cast<Aint>(counts[rank]) : 0;
}
template <class N>
Aint sum_of(const N* counts, Aint n) {
  Aint sum = 0;
  if (!counts) return 0;
  for (Aint i = 0; i < n; ++i) sum += static_cast<Aint>(counts[i]);
  return sum;
}

// ---- nodes (option intranode) ----

/// Set by find_node(), and read by every call that leases.
inline constinit std::atomic<bool> g_node_known{false};

/// Collective over all processes, after MPI_Init: which of them are on this node. Where it was not called,
/// every process counts as remote; so does one that joins later.
void find_node();
/// Frees the results of find_node() before MPI_Finalize.
void forget_node();
inline bool node_is_known() { return g_node_known.load(std::memory_order_acquire); }
bool on_this_node(Comm comm, int rank);
bool all_on_this_node(Comm comm);
bool target_on_this_node(Win win, int target);
bool all_targets_on_this_node(Win win);

}  // namespace pinion::mpi::PINION_MPI_ABI
