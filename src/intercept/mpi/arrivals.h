// How much of a posted receive arrives. Programs post receives for the longest message that could come; a NIC
// is told by the sender's request how long this one is. The front hears it too late, when the receive
// completes: so it learns, for each place in the program and sender, the longest message that has come, and
// leases that much. When more comes than was leased, the rest is leased at completion, late, as a library
// that had registered too little would have to.
//
// Any thread, no locks: two threads that meet in one place of the table can make a prediction wrong, nothing
// else.
#pragma once

#include <cstdint>

#include "engine/lease_path.h"

namespace pinion::mpi {

/// A receive under way. Nothing is known, and nothing learnt, while `posted` is 0.
struct Receive {
  Address buffer = 0;
  std::uint64_t posted = 0;  ///< bytes that the program offers
  std::uint64_t leased = 0;  ///< bytes from the beginning on
  std::uint64_t key = 0;     ///< what was learnt is kept under it
  CallPoint point;
};

/// Where what is learnt about receives like this one is kept.
std::uint64_t arrival_key(CallSite site, int source, std::uint64_t posted);
/// The bytes that will arrive, as far as is known: at most `posted`.
std::uint64_t expected_arrival(std::uint64_t key, std::uint64_t posted);
/// So many bytes arrived: learns, and leases what was missing.
void settle_arrival(ThreadContext& thread, LeasePath& leases, const Receive& receive, std::uint64_t arrived);

}  // namespace pinion::mpi
