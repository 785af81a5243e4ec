// The leases of one MPI call, from the buffers that the wrapper names until the call ends or an object takes
// them over that waits for the operation's end. Only the outermost call of a thread leases (nesting.h), and
// the leases lie in memory of the thread, where they outlast a jump out of the call. Lives in the wrapper's
// frame; one thread, outside of hooks.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "callsite/unwind.h"
#include "intercept/mpi/arrivals.h"
#include "intercept/mpi/holdings.h"
#include "intercept/mpi/nesting.h"
#include "intercept/mpi/operation.h"
#include "intercept/mpi/requests.h"
#include "intercept/verbs/call_context.h"
#include "lease/lease.h"

namespace pinion::mpi {

/// Room for a lease; made when one is taken.
union LeaseSlot {
  constexpr LeaseSlot() : unused() {}
  char unused;
  Transfer transfer;
};

/// The leases of the call that the thread is in.
struct ThreadLeases {
  std::size_t count = 0;                  ///< first in `slots`
  LeasePath* path = nullptr;              ///< which has given them
  std::vector<Transfer>* more = nullptr;  ///< of blocks that lie far apart; made at the first of them
  std::array<LeaseSlot, 4> slots{};       ///< the most buffers of a call, and blocks of a small datatype

  Transfer& at(std::size_t i) { return i < slots.size() ? slots[i].transfer : (*more)[i - slots.size()]; }
};
[[gnu::tls_model("initial-exec")]] inline constinit thread_local ThreadLeases t_leases{};

class CallLeases {
 public:
  CallLeases(const EntryFrame& entry, CallKind kind) : entry_(entry), kind_(kind) {}
  [[gnu::always_inline]] ~CallLeases() {
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
  /// Leases a receive (arrivals.h), of which `known` bytes will arrive if that is not negative. It is the
  /// last buffer that its call names.
  void acquire_arriving(Range posted, int peer, std::int64_t known);

  // ---- the shortest ways; false: the ordinary one is to be taken ----
  // Their calls are jumps, which save no registers.

  bool enter_quickly() { return nesting_.enter_quickly() && !nesting_.lease_path().acts_below(); }
  /// Leases memory that is registered already, where its use leaves no record. `arriving`: it is a receive's.
  [[gnu::always_inline]] bool lease_quickly(Range range, Access access, bool arriving = false) {
    LeasePath& path = nesting_.lease_path();
    if (arriving && (!path.options().receives_arrived || path.is_pressed(0))) return false;
    if (count_ >= t_leases.slots.size()) return false;
    const auto quick = path.lease_quickly(nesting_.thread(), 0, range, access, newest());
    if (quick == LeasePath::Quick::counted || quick == LeasePath::Quick::rest) [[unlikely]]
      return lease_counted(quick, range, access, arriving);
    return quick == LeasePath::Quick::done && leased(range, arriving);
  }

  /// Leases the buffers of a persistent request that starts.
  void repeat(const Remembered& remembered);

  /// True while a receive's length is to be learnt: by received(), or by the request.
  bool awaits_length() const { return receive_.under_way(); }
  void received(std::uint64_t bytes) {
    if (!nesting_.holds() || is_over()) return;
    Transfer& newest = t_leases.at(count_ > 0 ? count_ - 1 : 0);
    if (receive_.end(nesting_.thread(), nesting_.lease_path(), static_cast<std::int64_t>(bytes), newest))
      count(count_ - 1);
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
  /// The run has ended during the call.
  bool is_over() const { return &nesting_.lease_path() != LeasePath::running(); }
  /// Room for the next lease of lease_quickly().
  Transfer& newest() const { return t_leases.slots[count_].transfer; }
  void count(std::size_t leases) {
    t_leases.path = &nesting_.lease_path();
    t_leases.count = count_ = leases;
  }
  /// The rest of lease_quickly(), which a hit does without that its region counts.
  bool lease_counted(LeasePath::Quick quick, Range range, Access access, bool arriving);
  /// Counts the lease that lease_quickly() has made.
  bool leased(Range range, bool arriving) {
    count(count_ + 1);
    if (arriving) receive_.begin_whole(range.bytes());
    return true;
  }
  Transfer& place_for_lease();
  /// The call with a peer, for a record.
  const CallPoint& point(int peer);
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
  bool stamped_ = false;   ///< point_ is set
  std::size_t count_ = 0;  ///< that of t_leases, while nesting_ holds
  Receive receive_;
  Nesting nesting_;
  union {
    CallPoint point_;
  };
};

}  // namespace pinion::mpi
