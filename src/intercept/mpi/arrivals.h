// Receives under way. Programs post receives for the longest message that could come. A NIC gets the real
// length with the sender's request; the front gets it too late, when the receive completes. A receive is
// nevertheless judged by what arrives:
//
// - Where all that is posted is registered already, and its use leaves no record, all of it is leased. The
//   end corrects what was counted. Memory that has been short is excepted: such a lease would keep a
//   region that a short message does not need.
// - Else the front learns, for each call site and sender, the longest message so far, and leases that much.
//   When more arrives, the rest is leased at completion, late: a library that had registered too little would
//   do the same.
//
// Any thread, no locks: two threads that meet in one place of the table can only make a prediction wrong.
#pragma once

#include <cstdint>
#include <utility>

#include "lease/lease.h"

namespace pinion::mpi {

/// A value: its owner guards it, and has the leases.
class Receive {
 public:
  Receive() {}

  /// Whether end() is to be called.
  bool under_way() const { return posted_ != 0; }
  /// The bytes that the program offers; 0: it is not under way.
  std::uint64_t posted() const { return posted_; }
  /// All `posted` bytes are under lease, by CallLeases::lease_quickly().
  void begin_whole(std::uint64_t posted) {
    posted_ = posted;
    whole_ = true;
  }
  /// `known` bytes are expected, or if that is negative, as many as the longest message had so far. Returns
  /// the bytes to lease from the beginning of `posted` on.
  std::uint64_t begin_expected(LeasePath& leases, Range posted, const CallPoint& point, std::int64_t known);
  /// `arrived`: bytes received, or negative where that is unknown. True: `lease`, that of a receive begun by
  /// begin_whole(), was released, since less had arrived.
  bool end(ThreadContext& thread, LeasePath& leases, std::int64_t arrived, Transfer& lease) {
    const std::uint64_t posted = std::exchange(posted_, 0);
    if (whole_ && (arrived < 0 || static_cast<std::uint64_t>(arrived) >= posted)) [[likely]]
      return false;
    return end_otherwise(thread, leases, posted, arrived, lease);
  }

 private:
  struct Expected {
    Address buffer;
    std::uint64_t leased;  ///< bytes from the beginning on
    std::uint64_t key;     ///< of the learnt length
    CallPoint point;
  };

  bool end_otherwise(ThreadContext& thread, LeasePath& leases, std::uint64_t posted, std::int64_t arrived,
                     Transfer& lease);

  std::uint64_t posted_ = 0;
  bool whole_ = false;  ///< all that is posted is under lease
  union {
    Expected expected_;  ///< where it is not
  };
};

}  // namespace pinion::mpi
