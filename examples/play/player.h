// Plays the steps of one rank: real messages between real ranks, each with stamps that its receiver checks.
// One thread, between MPI_Init and MPI_Finalize.
#pragma once

#include <mpi.h>

#include <unordered_map>
#include <vector>

#include "call_sites.h"
#include "computation.h"
#include "steps.h"

namespace play {

class Player {
 public:
  /// `steps` have real addresses, `sites` are those of all ranks. Collective over all ranks.
  Player(const Steps& steps, const std::vector<std::uint64_t>& sites, const Computation& computation);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  /// All of it. Whether every message arrived as it was sent.
  bool play();

  /// The MPI call of a step, from the function of its site.
  [[gnu::noinline]] void call_mpi(const Step& step);

 private:
  /// A message that is to be checked once it is complete.
  struct Arrival {
    Range memory;
    std::uint64_t stamp;
  };

  void play_part(const std::vector<Step>& part);
  void prepare(const Step& step);
  void prepare_exchange(const Step& step);
  void complete();

  const Steps& steps_;
  const Computation& computation_;
  std::unordered_map<std::uint64_t, CallFrom> sites_;
  std::vector<MPI_Comm> groups_;
  int rank_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Arrival> arrivals_;
  std::vector<std::uint64_t> sent_, received_;  ///< messages so far, by peer
  std::vector<std::uint64_t> exchanged_;        ///< all-to-alls so far, by group
  bool right_ = true;
};

}  // namespace play
