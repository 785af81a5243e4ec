// The pipeline protocol's time and memory on the virtual clock: a piece is registered while the pieces before
// it are on the wire (cli/bench/messages/pipeline.cpp moves real data so). Sender and receiver do the same work at
// the same time. Pure.
#pragma once

#include <cstddef>

#include "base/clock.h"
#include "device/model/cost_model.h"
#include "simulate/pattern.h"

namespace pinion::simulate {

struct Pipeline {
  std::size_t piece_bytes = std::size_t{1} << 20;   ///< registered at once
  std::size_t chunk_bytes = std::size_t{64} << 10;  ///< of the bounce pool
  unsigned chunks = 32;
  unsigned depth = 4;  ///< parts of a message under way at once
  /// The pool copies shorter messages, as in Open MPI 1.4; of longer ones their first chunk.
  std::size_t register_from = (std::size_t{1} << 20) + 1;
};

/// The way in which the pieces of one message find their memory, and leave it.
enum class Pieces {
  unregistered,  ///< each is registered, and stays so
  registered,    ///< each was left registered by an earlier message
  passing,       ///< each is registered for its transfer only
};

/// Returns the time from the call to its return; `passing` contains the deregistrations.
Duration pipeline_time(std::size_t bytes, Pieces pieces, const Pipeline& pipeline, const CostModel& nic,
                       const Machine& machine);

/// Most that one side has registered, with its pool: `buffers` of `bytes` used in turn, left registered or
/// not.
std::size_t pipeline_peak(std::size_t bytes, std::size_t buffers, bool pinned, const Pipeline& pipeline);

}  // namespace pinion::simulate
