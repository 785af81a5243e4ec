// Ranks that wait for each other: what the patterns of papers/ have, and a log's ranks, which name no peers,
// have not. A job brings them with its Workload; a run asks for its own Meetings and lets those go on that
// woken() names. One thread a run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "simulate/rank_kinds.h"

namespace pinion::simulate {

/// The other ranks of a process's job, as its thread sees them.
class Peers {
 public:
  virtual ~Peers() = default;
  /// Begins the next messages of this rank. Returns whether a peer goes on now that had waited for one.
  virtual bool begin(unsigned messages) = 0;
  /// Returns whether the peers have begun their parts of all messages under way. Where they have not,
  /// Process::peers_came() follows.
  virtual bool met() = 0;
};

/// The messages of the simulated ranks while they run.
class Meetings {
 public:
  virtual ~Meetings() = default;
  /// Returns the others as the process of simulated rank `number` sees them.
  virtual Peers& peers_of(std::size_t number) = 0;
  /// Returns those who go on since the last call.
  virtual std::vector<std::uint32_t> woken() = 0;
};

/// It tells who waits for whom. It is a value, shared by all runs of a workload.
class Coupled {
 public:
  virtual ~Coupled() = default;
  /// Mixes into each rank's mark what its messages meet, by the kinds of their ranks.
  virtual void mark(const RankKinds& kinds, std::vector<std::uint64_t>& marks) const = 0;
  /// `simulated`: one rank of each kind. All three outlive the meetings.
  virtual std::unique_ptr<Meetings> meetings(const Workload& workload, const RankKinds& kinds,
                                             std::vector<std::uint32_t> simulated) const = 0;
};

}  // namespace pinion::simulate
