// The owner: which buckets of this process are registered for its peers, and by whom they are held. Pure
// protocol: calls bring events, OwnerActions carry out the answers; no threads, no clock, no I/O. One thread
// at a time, under the caller's lock.
//
//             want                 pinned()                last release, or gone()
//   absent ─────────> [waiting] ──> pinning ────> held <────────────────────> idle (in the victim FIFO)
//      ^                                            │ revoke()                 │ room is needed, or revoke()
//      └──────────────── unpinned() ─── unpinning <─┴──────── last release ────┘
//
// Never more than M + MAXVICTIM is registered: a bucket waits until another's deregistration has ended. A
// want waits for registrations of this process only. Where peers would have to let go first, it is refused,
// and its operation goes by message.
//
// Wants and revocations allocate before they change anything: a want is refused with ENOMEM, revoke() throws
// bad_alloc. No other event fails.
//
// Peers are untrusted. A release counts if the peer holds that bucket in that epoch; a want of a bucket that
// the peer holds is refused. OwnerActions decide which buckets are exposed.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "firehose/bucket_table.h"
#include "firehose/messages.h"
#include "firehose/pool.h"
#include "firehose/quota.h"

namespace pinion::firehose {

/// Names a revocation; of the caller's choice.
using Revocation = std::uint64_t;

/// Called within an event, under the caller's lock: they note it down and return. The event that ends an
/// action comes later.
class OwnerActions {
 public:
  /// Messages to one peer leave in the order of these calls.
  virtual void send(Peer to, const Message& message) = 0;
  /// Room to note down so many pin(), unpin() and revoked() that have not ended. False: out of memory.
  virtual bool reserve(std::size_t) { return true; }
  /// Whether peers may have it registered, in part or whole.
  virtual bool exposes(Bucket bucket) const = 0;
  /// Register it; ends with pinned() or pin_failed().
  virtual void pin(BucketRef ref) = 0;
  /// Deregister it; ends with unpinned().
  virtual void unpin(BucketRef ref) = 0;
  /// It holds a bucket past the deadline: close its connection; ends with gone().
  virtual void cut_off(Peer peer) = 0;
  /// All peers have let go of the memory. Ends with end_revocation().
  virtual void revoked(Revocation revocation) = 0;

 protected:
  ~OwnerActions() = default;
};

struct OwnerCounters {
  std::uint64_t grants = 0, refusals = 0;
  std::uint64_t pins = 0, failed_pins = 0, unpins = 0;
  std::uint64_t victim_hits = 0;  ///< wants that found the bucket in the FIFO
  std::uint64_t shared_hits = 0;  ///< that found it held by another peer
  std::uint64_t recalls = 0;      ///< messages
  std::uint64_t cut_off = 0;
  std::uint64_t peak = 0;  ///< buckets registered
};

class Owner {
 public:
  Owner(const Quota& quota, OwnerActions& actions);

  // ---- from peers ----

  void move(Peer from, const Move& move);
  void release(Peer from, const Release& release);
  /// Its connection is closed: it reaches nothing any more.
  void gone(Peer peer);

  // ---- from this process ----

  void pinned(BucketRef ref, const RemoteParts& parts);
  /// `error`: an errno value, for those that want it.
  void pin_failed(BucketRef ref, int error);
  void unpinned(BucketRef ref);

  /// Memory of these buckets is about to change. Ends with OwnerActions::revoked(); until end_revocation(),
  /// wants of these buckets are refused. Peers that hold one after `deadline` are cut off, by late().
  /// Throws bad_alloc, without effect.
  void revoke(Revocation revocation, BucketRange buckets, Time deadline);
  /// The memory has changed, or will not; also before revoked(), which then never comes.
  void end_revocation(Revocation revocation);
  /// The earliest deadline of those under way, or kNever.
  Time deadline() const;
  void late(Time now);

  /// The memory for peers shrinks or grows: unused buckets go at once, firehoses are asked back.
  void resize(std::uint64_t buckets, std::uint64_t victims);
  /// As Quota::move_time.
  void moves_take(Duration time) { quota_.move_time = time; }

  /// A peer's operation on that memory went by message, and ended well. True: the bucket is registered
  /// without it, and the caller should look whether it could be part of it now (renew()). Asked ever more
  /// rarely.
  [[nodiscard]] bool lacks(Range memory, Bucket bucket);
  /// Peers let go of the bucket's registration, and may ask for a new one.
  void renew(Bucket bucket);

  // ---- state ----

  /// Registered, or on the way there or back.
  std::uint64_t registered() const { return registered_; }
  /// Held by peers, or wanted.
  std::uint64_t held() const { return held_; }
  std::uint64_t idle() const { return fifo_.size(); }
  /// Of a peer, wants included.
  std::uint64_t firehoses(Peer peer) const { return peers_[peer].holders.size(); }
  const OwnerCounters& counters() const { return counters_; }
  const Quota& quota() const { return quota_; }
  /// f(std::uint64_t) for each value that decides about later events, in a fixed order. For tests.
  template <class F>
  void visit(F&& f) const;

 private:
  struct Entry;
  /// A peer's firehose in a bucket, or its want of one.
  struct Holder {
    std::atomic<Peer> peer{0};
    std::atomic<Bucket> bucket{0};
    Entry* entry = nullptr;
    bool granted = false;
    Link<Holder> of_entry, of_peer;
  };
  using EntryHolders = LinkedList<Holder, &Holder::of_entry>;
  using PeerHolders = LinkedList<Holder, &Holder::of_peer>;

  enum class State : std::uint8_t { waiting, pinning, pinned, unpinning };
  /// A bucket that is registered, or on its way.
  struct Entry {
    std::atomic<Peer> peer{0};  ///< none
    std::atomic<Bucket> bucket{0};
    Epoch epoch = 0;
    State state = State::waiting;
    bool doomed = false;  ///< a revocation waits until it is absent
    RemoteParts parts;
    std::uint32_t lacking = 0;  ///< operations by message on memory that `parts` lack
    EntryHolders holders;
    Link<Entry> queue;  ///< waiting_, or the FIFO
    Link<Entry> found;  ///< the result of entries_in()
  };
  using Queue = LinkedList<Entry, &Entry::queue>;
  using Found = LinkedList<Entry, &Entry::found>;

  struct PeerState {
    Peer number = 0;
    PeerHolders holders;
    bool gone = false;
    bool cut_off = false;
    bool denied = false;       ///< its limit is 0
    std::uint64_t recall = 0;  ///< number of its latest Recall
    Link<PeerState> active;
  };

  struct Revoking {
    Revocation name;
    BucketRange buckets;
    Time deadline;
    std::uint64_t left;  ///< entries
  };

  /// Moves under way beyond M, with lending.
  static constexpr std::uint64_t kMostQueued = 4;

  int why_refused(const PeerState& peer, Bucket bucket) const;
  bool reserve();
  bool is_congested() const;
  void want(PeerState& peer, Bucket bucket, Answer& answer);
  void grant(Holder& holder, Answer& answer);
  void refuse(Bucket bucket, int error, Answer& answer);
  void refuse_wants(Entry& entry, int error);
  void release_one(PeerState& peer, const BucketRef& ref);
  void drop(Holder& holder);
  void left_unused(Entry& entry);
  void make_idle(Entry& entry);
  void unpin(Entry& entry);
  void unpin_oldest();
  void make_absent(Entry& entry);
  void start_pins();
  void doom(Entry& entry, BucketRange buckets);
  std::uint32_t limit_of(const PeerState& peer) const;
  std::uint32_t delay() const;
  void press(const PeerState& asking, Duration expected);
  void shrink_to(std::uint64_t buckets);
  void send(Peer to, Answer& answer);
  Entry* entry_of(BucketRef ref, State state);
  Found entries_in(BucketRange buckets);

  Quota quota_;
  OwnerActions& actions_;
  std::vector<PeerState> peers_;
  LinkedList<PeerState, &PeerState::active> active_;  ///< those with holders
  BucketTable<Entry> entries_;
  BucketTable<Holder> holders_;
  Pool<Entry> entry_pool_;
  Pool<Holder> holder_pool_;
  Queue waiting_;  ///< for room
  Queue fifo_;     ///< idle
  std::vector<Revoking> revoking_;
  Epoch last_epoch_ = 0;
  std::uint64_t recalls_ = 0;  ///< numbers the revocations
  std::uint64_t registered_ = 0;
  std::uint64_t pinning_ = 0;
  std::uint64_t unpinning_ = 0;
  std::uint64_t held_ = 0;  ///< entries with holders
  OwnerCounters counters_;
};

template <class F>
void Owner::visit(F&& f) const {
  const auto bucket_of = [](const Entry& entry) { return entry.bucket.load(std::memory_order_relaxed); };
  entries_.for_each([&](const Entry& entry) {
    f(bucket_of(entry));
    f(entry.epoch);
    f(static_cast<std::uint64_t>(entry.state) * 2 + entry.doomed);
    for (const Holder* holder = entry.holders.front(); holder; holder = EntryHolders::next(*holder))
      f(holder->peer.load(std::memory_order_relaxed) * 2 + holder->granted);
  });
  for (const Queue* queue : {&waiting_, &fifo_}) {
    f(queue->size());
    for (const Entry* entry = queue->front(); entry; entry = Queue::next(*entry)) f(bucket_of(*entry));
  }
  for (const PeerState* peer = active_.front(); peer; peer = active_.next(*peer)) f(peer->number);
  for (const PeerState& peer : peers_) f(peer.denied * 4u + peer.gone * 2u + peer.cut_off);
  for (const Revoking& revoking : revoking_) {
    f(revoking.name);
    f(revoking.left);
    f(static_cast<std::uint64_t>(revoking.deadline));
  }
  f(last_epoch_);
}

}  // namespace pinion::firehose
