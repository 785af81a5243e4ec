// The leases of one MPI call, from the buffers that the wrapper names until the call ends or an object takes
// them over that waits for the operation's end. Only the outermost call of a thread leases (nesting.h). Lives
// in the wrapper's frame; one thread, outside of hooks.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "engine/lease_path.h"
#include "intercept/mpi/arrivals.h"
#include "intercept/mpi/holdings.h"
#include "intercept/mpi/nesting.h"
#include "intercept/mpi/operation.h"
#include "intercept/mpi/requests.h"
#include "intercept/verbs/call_context.h"
#include "predict/unwind.h"

namespace pinion::mpi {

class CallLeases {
 public:
  CallLeases(const EntryFrame& entry, CallKind kind) : entry_(entry), kind_(kind) {}
  ~CallLeases() {
    if (count_ > 0) release();
    if (told_) [[unlikely]]
      verbs::t_mpi_call = {};
  }
  CallLeases(const CallLeases&) = delete;
  CallLeases& operator=(const CallLeases&) = delete;

  CallKind kind() const { return kind_; }
  /// Makes the calls below this one pass by. False: this call is inside of another one, or the engine is
  /// stopped.
  bool outermost() { return nesting_.enter(); }
  /// Prepares for leases; the other functions need it. False where leasing is off: the call is not the
  /// outermost, or libraries below register (--front verbs). These then get the call's context, with `peer`.
  bool enter(int peer) {
    if (!outermost()) return false;
    if (!nesting_.lease_path().acts_below()) [[likely]]
      return true;
    tell(peer);
    return false;
  }

  /// Leases memory, in parts where the device bounds a region.
  void acquire(Range range, Access access, int peer, Refusal refusal = Refusal::charge);
  /// Leases as much of a receive as will arrive: `known` bytes, or if that is negative, the longest message
  /// so far.
  void acquire_arriving(Range posted, int peer, std::int64_t known);
  /// Leases the buffers of a persistent request that starts.
  void repeat(const Remembered& remembered);

  /// True while a receive's length is to be learnt: by received(), or by the request.
  bool awaits_length() const { return receive_.posted > 0; }
  void received(std::uint64_t bytes) {
    learn_arrival(nesting_.thread(), nesting_.lease_path(), receive_, bytes);
  }

  /// Gives all leases back, for a call that names its buffers once more.
  void start_over() {
    release();
    receive_ = {};
  }
  /// Give all leases to an object that waits for the operation's end.
  void hand_over_to(Requests::Key request) {
    if (count_ > 0 || awaits_length()) move_to(request);
  }
  void hand_over_to(Holdings& holdings, Holdings::Key object, std::uint64_t part) {
    if (count_ > 0) move_to(holdings, object, part);
  }

 private:
  /// Made when a lease is taken: small messages skip its cost.
  union Slot {
    Slot() {}
    Transfer transfer;
  };

  /// Stamps the call: the time, and its site.
  void stamp();
  /// Tells the call's context to libraries below.
  void tell(int peer);
  void release();
  template <class Take>
  void take_all(Take take);
  void move_to(Requests::Key request);
  void move_to(Holdings& holdings, Holdings::Key object, std::uint64_t part);

  const EntryFrame entry_;
  CallKind kind_;
  bool told_ = false;      ///< verbs::t_mpi_call is this call
  std::size_t count_ = 0;  ///< leases, first in slots_
  Receive receive_;
  Nesting nesting_;
  std::vector<Transfer> more_;  ///< of blocks that lie far apart
  CallPoint point_;
  std::array<Slot, 3> slots_;  ///< the most buffers of a call
};

}  // namespace pinion::mpi
