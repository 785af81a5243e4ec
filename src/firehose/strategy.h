// The interface of the algorithms that are compared: by which way puts and gets reach a peer's memory.
//
// A strategy takes each part over at begin(), and hands it on, at once or later: to the Courier (the target's
// processor carries it out) or to RemoteAccess (the provider does). It may keep the part's memory at the peer
// until ended(). All functions may be called by any thread; begin(), message(), gone() and ended() also
// inside the endpoint's progress, so they never block. Slow work belongs into work(), which the agent calls
// after the bell has rung. Three may throw bad_alloc: open(); work(), which is then called again; and
// message(), by which the peer is cut off.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"
#include "firehose/call.h"
#include "pinion/firehose.h"

namespace pinion::firehose {

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// The peers are met; messages of theirs may have come before.
  virtual Error open() { return {}; }
  /// All processes that live are past their operations, and the job's threads have ended.
  virtual void close() {}

  /// Parts never cross a multiple of it at the peer; 0: calls are not cut.
  virtual std::uint64_t bucket_bytes() const { return 0; }
  /// Takes over parts of one call, so to one peer; at most kMostTogether.
  virtual void begin(std::span<Part* const> parts) = 0;
  static constexpr std::size_t kMostTogether = 32;
  /// A part that went by the provider is over, perhaps by an error.
  virtual void ended(Part&) {}
  /// A part that went by message is over, without error.
  virtual void answered(Part&) {}

  /// A peer's put, get or atomic on this memory came by message, and was carried out.
  virtual void served(Range) {}

  virtual void message(Peer, const void*, std::size_t) {}
  virtual void gone(Peer) {}
  /// Operations with the peer end, and none begins. It may still reach this process's memory, until gone().
  virtual void disconnected(Peer) {}
  /// Returns the time by which it has to be called again.
  virtual Time work() { return kNever; }
  virtual void add_to(struct pinion_firehose_statistics&) const {}
};

/// EINVAL: there is no strategy of that name; the message lists them.
Error check_strategy(const std::string& name);
/// The name has passed the check.
std::unique_ptr<Strategy> make_strategy(const std::string& name, Ways& ways);

}  // namespace pinion::firehose
