// Predicts how much of a posted receive arrives. Programs post receives for the longest message that could
// come. A NIC gets the real length with the sender's request; the front gets it too late, when the receive
// completes. So the front learns, for each call site and sender, the longest message so far, and leases that
// much. When more arrives, the rest is leased at completion, late: a library that had registered too little
// would do the same.
//
// Any thread, no locks: two threads that meet in one place of the table can only make a prediction wrong.
#pragma once

#include <cstdint>

#include "engine/lease_path.h"

namespace pinion::mpi {

/// A receive under way. While `posted` is 0 its length is left alone.
struct Receive {
  Address buffer = 0;
  std::uint64_t posted = 0;  ///< bytes that the program offers
  std::uint64_t leased = 0;  ///< bytes from the beginning on
  std::uint64_t key = 0;     ///< of the learnt length
  CallPoint point;
};

/// The key under which the lengths of such receives are learnt.
std::uint64_t arrival_key(CallSite site, int source, std::uint64_t posted);
/// The bytes that will arrive, as far as is known: at most `posted`.
std::uint64_t expected_arrival(std::uint64_t key, std::uint64_t posted);
/// Learns that so many bytes arrived, and leases the missing rest.
void learn_arrival(ThreadContext& thread, LeasePath& leases, const Receive& receive, std::uint64_t arrived);

}  // namespace pinion::mpi
