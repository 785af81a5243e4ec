// The steps of each rank of a pattern, taken down from the simulator's pattern. Values; needs no
// MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "papers/patterns/pattern.h"

namespace play {

using pinion::Address;
using pinion::CallKind;
using pinion::Duration;
using pinion::Error;
using pinion::Range;

struct Step {
  enum class Kind : std::uint8_t {
    compute,
    post,      ///< begins a message; a blocking call also ends it
    wait,      ///< ends all messages under way
    alltoall,  ///< `memory` is sent, `received` is received
    unmap,
  };
  Kind kind;
  CallKind call = CallKind::none;
  Range memory{};  ///< the pattern's own addresses
  Range received{};
  int peer = -1;
  std::size_t group = 0;   ///< of an alltoall: in Steps::groups
  std::uint64_t site = 0;  ///< the pattern's name for it
  Duration time = 0;       ///< of a computation

  bool sends() const { return call == CallKind::send || call == CallKind::send_nonblocking; }
};

/// The steps of one rank: before, in each turn of, and after its main loop.
struct Steps {
  std::vector<Step> before, turn, after;
  std::uint64_t turns = 0;
  std::vector<Range> arrays;             ///< every buffer of the program
  std::vector<std::vector<int>> groups;  ///< ranks that exchange all-to-all, in order of first use

  bool unmaps() const;
};

/// The steps of all ranks. The error names a step that cannot be played: a message to a missing rank, or one
/// whose receiver waits for another number of bytes.
Error steps_of(const pinion::simulate::Pattern& pattern, std::uint64_t turns,
               const pinion::simulate::Machine& machine, std::vector<Steps>& ranks);

/// Distinct sites of all ranks, in order.
std::vector<std::uint64_t> sites_of(const std::vector<Steps>& ranks);

}  // namespace play
