// Registrations that the library makes for the program as without Pinion: they pass by. They count against
// the limits, and the time of those that pass by because their keys are strict is counted
// (own_registrations.h).
//
// Any thread; not from hooks.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

#include "callsite/unwind.h"
#include "intercept/verbs/under_way.h"

namespace pinion::verbs {

struct Asked {
  ibv_pd* pd;
  void* address;
  std::size_t bytes;
  std::uint64_t iova;
  int access;
};

constexpr int kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kRemote = kRemoteWrites | IBV_ACCESS_REMOTE_READ;
constexpr int kPlain = IBV_ACCESS_LOCAL_WRITE | kRemote | IBV_ACCESS_RELAXED_ORDERING;
/// Whether a lease can answer it.
bool is_plain(const Asked& asked);

/// Faults in what is absent of a large range: the registration does so by one thread.
void fault_in_before(const Asked& asked);

/// A registration that passes by, from before it is made: idle regions make way for it where it exceeds a
/// limit, and it counts until it is deregistered. Lives in the frame that calls the library.
class Passing {
 public:
  Passing(const Asked& asked, runlog::PassedFor why, const EntryFrame& entry);
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;
  /// Then one of these; none where the library is left in another way.
  void made(const ibv_mr* mr);
  /// Under a handle of ours. Returns the bytes that count; 0 where it is not counted.
  std::uint64_t made();
  /// `error`: the system's.
  void refused(int error);

 private:
  const OwnVerbsCall own_call_;
  ThreadContext* thread_ = nullptr;  ///< null: it is not counted
  OwnRegistration counted_;
  BytesUnderWay bytes_;
  Address return_address_;
  Ticks begin_ = 0;
};

/// The result of ibv_dereg_mr; nothing where the registration is not known.
std::optional<int> deregister_own(Address return_address, ibv_mr* mr);

/// The library has changed a registration that passed by.
void own_reregistered(const ibv_mr* mr, int changes, const Asked& changed);

}  // namespace pinion::verbs
