// The owner: which buckets of this process its peers hold, and may hold. A pure protocol object: a call
// brings an event, next() returns the actions that it asks for; no threads, no clock, no I/O. It is driven by
// owning.h on a process's own clock, by the simulator, and by the exhaustive test, one thread at a time under
// the caller's lock:
//
//   owner.move(from, message);
//   while (OwnerAction* action = owner.next()) { ...carry it out...; owner.put(*action); }
//
// A want waits for registrations of this process only (registrations.h). Where peers would have to let go
// first, it is refused, and its operation goes by message.
//
// Wants and revocations allocate before they change anything: a want is refused with ENOMEM, revoke() throws
// bad_alloc. No other event fails.
//
// Peers are untrusted. A release counts if the peer holds that bucket in that epoch; a want of a bucket that
// the peer holds is refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "firehose/bucket_table.h"
#include "firehose/messages.h"
#include "firehose/owner_actions.h"
#include "firehose/pool.h"
#include "firehose/quota.h"
#include "firehose/registrations.h"
#include "firehose/revocations.h"

namespace pinion::firehose {

struct OwnerCounters {
  std::uint64_t grants = 0, refusals = 0;
  std::uint64_t pins = 0, failed_pins = 0, unpins = 0;
  std::uint64_t victim_hits = 0;  ///< wants that found the bucket in the FIFO
  std::uint64_t shared_hits = 0;  ///< wants that found it held by another peer
  std::uint64_t recalls = 0;      ///< messages
  std::uint64_t cut_off = 0;
};

class Owner {
 public:
  /// Whether peers may have the bucket registered, in part or whole. A constant of the context, for an event.
  using Exposes = bool (*)(const void* context, Bucket bucket);

  /// `exposes`: null where all memory is exposed.
  explicit Owner(const Quota& quota, Exposes exposes = nullptr, const void* context = nullptr);

  // ---- actions ----

  /// The next action that the events have asked for, in order; null: none is left. Grants and refusals come
  /// within their answer.
  OwnerAction* next();
  /// The message of an action that next() returned last.
  Message message_of(const OwnerAction& action) const;
  /// Gives an action back: it was carried out, or copied.
  void put(OwnerAction& action) { actions_.put(action); }

  // ---- from peers ----

  void move(Peer from, const Move& move);
  void release(Peer from, const Release& release);
  /// The peer's connection is closed: it reaches nothing any more.
  void gone(Peer peer);

  // ---- from this process ----

  void pinned(BucketRef ref, const RemoteParts& parts);
  /// `error`: an errno value, for those that want it.
  void pin_failed(BucketRef ref, int error);
  void unpinned(BucketRef ref);

  /// Memory of these buckets is about to change. Ends with the action `revoked`; until end_revocation(),
  /// wants of these buckets are refused. Peers that hold one after `deadline` are cut off, by late(). Throws
  /// bad_alloc, without effect.
  void revoke(Revocation revocation, BucketRange buckets, Time deadline);
  /// The memory has changed, or will not; also before `revoked`, which then never comes.
  void end_revocation(Revocation revocation) { revocations_.end(revocation); }
  /// The earliest deadline of those under way, or kNever.
  Time deadline() const { return revocations_.deadline(); }
  void late(Time now);

  /// The memory for peers shrinks or grows: unused buckets go at once, firehoses are asked back.
  void resize(std::uint64_t buckets, std::uint64_t victims);
  /// Sets Quota::move_time.
  void moves_take(Duration time) { quota_.move_time = time; }

  /// A peer's operation on that memory went by message, and ended well. True: the bucket is registered
  /// without it, and the caller should look whether it could be part of it now (renew()). Becomes true ever
  /// more rarely.
  [[nodiscard]] bool lacks(Range memory, Bucket bucket);
  /// Peers let go of the bucket's registration, and may ask for a new one.
  void renew(Bucket bucket);

  // ---- state ----

  const Registrations& registrations() const { return registrations_; }
  /// Buckets that peers hold or want.
  std::uint64_t held() const { return held_; }
  /// Buckets that a peer holds or wants.
  std::uint64_t firehoses(Peer peer) const { return peers_[peer].holders.size(); }
  const OwnerCounters& counters() const { return counters_; }
  const Quota& quota() const { return quota_; }
  /// f(std::uint64_t) for each value that decides about later events, in a fixed order. For tests.
  template <class F>
  void visit(F&& f) const {
    registrations_.visit(f);
    for (const PeerState* peer = active_.front(); peer; peer = active_.next(*peer)) f(peer->number);
    for (const PeerState& peer : peers_) f(peer.denied * 4u + peer.gone * 2u + peer.cut_off);
    revocations_.visit(f);
    f(registrations_.last_epoch());
  }

 private:
  using State = Registration::State;
  using PeerHolders = LinkedList<Holder, &Holder::of_peer>;

  struct PeerState {
    Peer number = 0;
    PeerHolders holders;
    bool gone = false;
    bool cut_off = false;
    bool denied = false;       ///< its limit is 0
    std::uint64_t recall = 0;  ///< number of its latest Recall
    Link<PeerState> active;
  };

  int why_refused(const PeerState& peer, Bucket bucket) const;
  std::size_t most_actions(std::size_t buckets, std::size_t revocations) const;
  bool reserve();
  void want(PeerState& peer, Bucket bucket, Answer& answer);
  void grant(Holder& holder, Answer& answer);
  void refuse_wants(Registration& of, int error);
  void release_one(PeerState& peer, const BucketRef& ref);
  void drop(Holder& holder);
  void left_unused(Registration& of);
  void make_absent(Registration& of);
  void revoked(Revocation revocation) { actions_.add(OwnerAction::Kind::revoked).number = revocation; }
  void doom(Registration& of, BucketRange buckets);
  std::uint32_t limit_of(const PeerState& peer) const;
  void press(const PeerState& asking, Duration expected);
  void shrink_to(std::uint64_t buckets);
  void send(Peer to, const Answer& answer);

  Quota quota_;
  const Exposes exposes_;
  const void* const context_;
  OwnerActions actions_;
  Answer answer_;  ///< the one that next() puts together
  std::vector<PeerState> peers_;
  LinkedList<PeerState, &PeerState::active> active_;  ///< the peers with holders
  Registrations registrations_;
  BucketTable<Holder> holders_;
  Pool<Holder> holder_pool_;
  Revocations revocations_;
  std::uint64_t recalls_ = 0;  ///< numbers the revocations
  std::uint64_t held_ = 0;     ///< registrations with holders
  OwnerCounters counters_;
};

}  // namespace pinion::firehose
