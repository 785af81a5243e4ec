// Strategies `firehose`, `rendezvous`, `rendezvous-unpin`. The first: each process keeps the buckets
// registered that its peers put to and get from, within its bound, until they are recalled. Carries out what
// the initiator (initiator.h) asks for; its other half, for this process's own memory, is owning.h.
//
//   begin() ── hit ──────────────────────────────> RemoteAccess
//      └─ miss: need() ── Move ──> owner ── Answer ──> granted: RemoteAccess    refused: Courier
//
// Any thread; a hit is free of locks. A mutex guards the initiator's slow calls; a thread holds it outside of
// waits and of the owner's lock. Messages are sent under it, in the protocol's order.
#pragma once

#include <atomic>
#include <span>

#include "base/mutex.h"
#include "firehose/distinct_count.h"
#include "firehose/initiator.h"
#include "firehose/operation_times.h"
#include "firehose/owning.h"
#include "firehose/strategy.h"
#include "firehose/ways.h"

namespace pinion::firehose {

/// The rights that stay once an operation's data is in place: a rendezvous lets its firehose go; then the
/// owner keeps the registration for good, or nothing.
enum class Keeps : std::uint8_t { firehoses, registrations, nothing };

class Caching final : public Strategy {
 public:
  Caching(Ways& ways, Keeps keeps);

  void close() override { owning_.close(); }
  std::uint64_t bucket_bytes() const override { return size_.bytes(); }
  void begin(std::span<Part* const> parts) override;
  void ended(Part& part) override;
  void answered(Part& part) override;
  void served(Range memory) override { owning_.served(memory); }
  void message(Peer from, const void* payload, std::size_t bytes) override;
  void gone(Peer peer) override;
  void disconnected(Peer peer) override;
  Time work() override { return owning_.work(); }
  void add_to(struct pinion_firehose_statistics& out) const override;

 private:
  using Need = Initiator::Need;

  Caching(Ways& ways, Keeps keeps, const Quota& quota);

  template <class Event>
  void run(Event&& event);
  void send(const Initiator::Sent& sent);
  void send_messages() REQUIRES(mutex_);
  void send_question(Part* rider) REQUIRES(mutex_);
  bool ride(Part& part, const Message& move);
  bool use_if_held(Part& part);
  void ask(std::span<Part* const> parts);
  void go_on(Part& part, const Initiator::Needed& needed);
  void by_message(Part& part);
  static bool locate(Part& part, Firehose& firehose);
  void outside(Part& part);
  bool use(Part& part, Firehose& firehose);

  Ways& ways_;
  const Keeps keeps_;
  const BucketSize size_;
  const bool rides_;              ///< a small part's data travels with its miss
  const std::size_t most_light_;  ///< bytes of a part that one message carries

  mutable Mutex mutex_;  ///< guards the initiator's slow calls, too
  DistinctCount distinct_ GUARDED_BY(mutex_);
  Initiator initiator_;

  Owning owning_;

  std::atomic<std::uint64_t> hits_{0}, misses_{0}, waited_{0}, moves_{0}, refusals_{0};
  std::atomic<std::uint64_t> sampled_hits_{0}, bookkeeping_ticks_{0};
  OperationTimes times_;
};

}  // namespace pinion::firehose
