// Strategies `firehose`, `rendezvous`, `rendezvous-unpin`. The first: each process keeps the buckets
// registered that its peers put to and get from, within its bound, until they are recalled. Binds the pure
// protocol (initiator.h, owner.h) to the endpoint, the registry (pins.h) and memory events (recalls.h).
//
//   begin() ── hit ──────────────────────────────> by_provider()
//      └─ miss: need() ── Move ──> owner ── Answer ──> granted: by_provider()    refused: by_message()
//
// A hit is free of locks. The initiator and the owner have a mutex each; a thread holds one of them at a
// time, outside of device calls and waits. Messages are sent under them, in the protocol's order. Pins and
// revocations are the agent's: it alone registers, and peers never keep it waiting.
//
// Memory is exposed only where its change can wait for the peers. It stays private where another monitor than
// libc's functions sees events, and while sight is lost. Where the provider writes by address past any key
// (shm), Pinion's own segments are exposed: they leave the arena once all peers have let go. A peer that is
// gone without that may be at a write still, so its buckets stay until its process has ended.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "firehose/distinct_count.h"
#include "firehose/initiator.h"
#include "firehose/operation_times.h"
#include "firehose/owner.h"
#include "firehose/pins.h"
#include "firehose/recalls.h"
#include "firehose/strategy.h"
#include "firehose/typical_time.h"

namespace pinion::firehose {

/// Once an operation's data is in place: a rendezvous lets its firehose go; then the owner keeps the
/// registration for good, or nothing.
enum class Keeps : std::uint8_t { firehoses, registrations, nothing };

/// Memory that peers may have registered.
enum class Exposes : std::uint8_t { nothing, own_segments, everything };

class Caching final : public Strategy, InitiatorActions, OwnerActions, Occupant {
 public:
  Caching(Ways& ways, Keeps keeps);

  void close() override;
  std::uint64_t bucket_bytes() const override { return size_.bytes(); }
  void begin(std::span<Part* const> parts) override;
  void ended(Part& part) override;
  void answered(Part& part) override;
  void served(Range memory) override;
  void message(Peer from, const void* payload, std::size_t bytes) override;
  void gone(Peer peer) override;
  void disconnected(Peer peer) override;
  Time work() override;
  void add_to(struct pinion_firehose_statistics& out) const override;

 private:
  using Firehose = BasicFirehose<>;

  struct Task {
    enum class Kind : std::uint8_t { pin, unpin, revoked, cut_off, look } kind;
    BucketRef ref{};
    std::uint64_t number = 0;  ///< of the revocation, or the peer
    Time since = 0;            ///< of a pin or unpin
    Range memory{};            ///< of a look
  };

  // ---- initiator
  template <class F>
  void as_initiator(F&& f);
  bool use_if_held(Part& part);
  void ask(std::span<Part* const> parts);
  void by_message(Part& part);
  static bool locate(Part& part, Firehose& firehose);
  void outside(Part& part);
  bool use(Part& part, Firehose& firehose);
  bool send_with(Peer to, const Move& move, Waiter& rider) override;
  void granted(Waiter& waiter, Firehose& firehose) override;
  void refused(Waiter& waiter, int error) override;

  /// Of both.
  void send(Peer to, const Message& message) override;

  // ---- owner
  bool reserve(std::size_t actions) override;
  bool exposes(Bucket bucket) const override;
  Range exposed_part(Bucket bucket) const;
  void pin(BucketRef ref) override;
  void unpin(BucketRef ref) override;
  void cut_off(Peer peer) override;
  void revoked(Revocation revocation) override;

  /// Leases of this process lack room: peers give some back, for a while.
  bool asked_for(std::uint64_t bytes) override;

  // ---- the agent
  void share_room(Time now);
  void add_task(const Task& task);
  void carry_out(const Task& task);
  void carry_out_changes();
  void pin_now(const Task& task);
  void unpin_now(const Task& task);
  void look_now(const Task& task);
  void revoked_now(Revocation revocation);
  void begin_revocations();
  void end_revocations();
  void bury(Time now);

  Ways& ways_;
  const Keeps keeps_;
  const BucketSize size_;
  const Quota quota_;
  const std::size_t most_light_;  ///< bytes of a part that one message carries
  const Duration patience_;
  std::atomic<Exposes> exposes_{Exposes::nothing};

  mutable std::mutex initiator_mutex_;  ///< guards the initiator's slow calls, and the next
  Parts answered_;                      ///< granted; or (without firehose) refused, by their error
  DistinctCount distinct_;
  BasicInitiator<> initiator_;

  mutable std::mutex owner_mutex_;  ///< guards the owner, and the next
  std::list<Task> tasks_, spare_;   ///< to do; room for more
  unsigned looks_ = 0;              ///< among tasks_
  Owner owner_;
  std::vector<bool> outlives_;  ///< by peer: it is gone, but its process lives
  Time bury_at_ = kNever;       ///< looks at those again

  // Never freed: hooks may be inside.
  Pins& pins_;
  Recalls& recalls_;
  // The agent's.
  bool pinning_ = false;
  std::optional<Recalls::Asked> revoking_;  ///< begins next
  Time carry_out_at_ = kNever;
  Time grow_at_ = kNever;  ///< the memory for peers, after it has shrunk

  std::atomic<std::uint64_t> missing_{0};  ///< bytes that leases lack

  std::atomic<std::uint64_t> hits_{0}, misses_{0}, waited_{0}, moves_{0}, refusals_{0};
  std::atomic<std::uint64_t> sampled_hits_{0}, bookkeeping_ticks_{0};
  OperationTimes times_;
  TypicalTime pin_time_, unpin_time_;  ///< with their wait for the agent
};

}  // namespace pinion::firehose
