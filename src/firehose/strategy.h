// How puts and gets reach a peer's memory: the seam between a job and the algorithms that are compared.
//
// A strategy takes each part over at begin(), and gives it to one of the job's ways, at once or later:
// by_message(), ride() or by_provider(). It may keep the part's memory at the peer until ended(). All
// functions may be called by any thread; begin(), message(), gone() and ended() also inside the endpoint's
// progress, so they never block. Slow work belongs into work(), which one thread of the job's calls after
// ring(). Three may throw bad_alloc: open(); work(), which is then called again; and message(), by which the
// peer is cut off.
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

/// A job's services to its strategy.
class Ways {
 public:
  virtual transfer::Endpoint& endpoint() = 0;
  /// With the job's size of buckets.
  virtual const pinion_firehose_options& options() const = 0;
  /// The target's processor carries the part out. answered() follows, perhaps before this returns.
  virtual void by_message(Part& part) = 0;
  /// The same for a small part, behind the strategy's own message to the peer. False: they do not fit in one,
  /// or other parts wait for the peer; nothing was sent.
  virtual bool ride(Part& part, const void* message, std::size_t bytes) = 0;
  /// The part that came behind a message of the peer's strategy.
  virtual void serve(Peer from, const void* message, std::size_t bytes) = 0;
  /// The provider carries it out, with part.target as its remote memory. ended() follows, perhaps before this
  /// returns. Where its local memory cannot be registered, it goes by message after that.
  virtual void by_provider(Part& part) = 0;
  /// The part fails.
  virtual void fail(Part& part, int error) = 0;
  /// A message to the peer's strategy, sent now or later, in order.
  virtual void control(Peer to, const void* message, std::size_t bytes) = 0;
  /// Strategy::work() is called soon.
  virtual void ring() = 0;
  /// Closes the connection with the peer: its operations end. gone() follows.
  virtual void cut_off(Peer peer) = 0;
  /// The largest part of a range, in whole pages, that peers may reach; empty: none.
  virtual Range exposed_part(Range range) const = 0;

 protected:
  ~Ways() = default;
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  /// The peers are met; messages of theirs may have come before.
  virtual Error open() { return {}; }
  /// All processes that live are past their operations, and the job's threads have ended.
  virtual void close() {}

  /// Parts never cross a multiple of it at the peer; 0: whole.
  virtual std::uint64_t bucket_bytes() const { return 0; }
  /// Parts of one call, so to one peer; at most kMostTogether.
  virtual void begin(std::span<Part* const> parts) = 0;
  static constexpr std::size_t kMostTogether = 32;
  /// A part given to by_provider() is over, perhaps by an error.
  virtual void ended(Part&) {}
  /// A part that went by message is over, without error.
  virtual void answered(Part&) {}

  /// A peer's put, get or atomic on this memory came by message, and was carried out.
  virtual void served(Range) {}

  virtual void message(Peer, const void*, std::size_t) {}
  virtual void gone(Peer) {}
  /// Operations with the peer end, and none begins. It may still reach this process's memory, until gone().
  virtual void disconnected(Peer) {}
  /// The time by which it has to be called again.
  virtual Time work() { return kNever; }
  virtual void add_to(struct pinion_firehose_statistics&) const {}
};

/// EINVAL: there is no strategy of that name; the message lists them.
Error check_strategy(const std::string& name);
/// Of a name that passed the check.
std::unique_ptr<Strategy> make_strategy(const std::string& name, Ways& ways);

}  // namespace pinion::firehose
