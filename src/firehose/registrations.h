// The buckets of this process that are registered for peers, or on the way there or back. Part of the owner
// (owner.h): the owner knows who holds them, this knows how many fit and which goes first.
//
//             add()                pinned()                  last holder leaves
//   absent ─────────> [waiting] ──> pinning ────> pinned ────────────────────> idle (in the victim FIFO)
//      ^                                            │ doomed                   │ room is needed, or doomed
//      └──────────────── unpinned() ─── unpinning <─┴──────────────────────────┘
//
// Never more than M + MAXVICTIM is registered: a bucket waits until another's deregistration has ended.
//
// Pure: what is to be done goes to the owner's actions. Guarded by the owner's lock; reserve() alone
// allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "firehose/bucket_table.h"
#include "firehose/messages.h"
#include "firehose/owner_actions.h"
#include "firehose/pool.h"
#include "firehose/quota.h"

namespace pinion::firehose {

struct Registration;

/// A peer's firehose in a bucket, or its want of one.
struct Holder {
  std::atomic<Peer> peer{0};
  std::atomic<Bucket> bucket{0};
  Registration* registration = nullptr;
  bool granted = false;
  Link<Holder> of_bucket, of_peer;
};

/// A bucket that is registered, or on its way.
struct Registration {
  using Holders = LinkedList<Holder, &Holder::of_bucket>;
  enum class State : std::uint8_t { waiting, pinning, pinned, unpinning };

  std::atomic<Peer> peer{0};  ///< always 0: a registration belongs to its bucket alone
  std::atomic<Bucket> bucket{0};
  Epoch epoch = 0;
  State state = State::waiting;
  bool doomed = false;  ///< a revocation waits until it is absent
  RemoteParts parts;
  std::uint32_t lacking = 0;  ///< operations by message on memory that `parts` lack
  Holders holders;
  Link<Registration> queue;  ///< links those that wait, or the FIFO
  Link<Registration> found;  ///< links the result of in()

  Bucket number() const { return bucket.load(std::memory_order_relaxed); }
  BucketRef ref() const { return {number(), epoch}; }
};

class Registrations {
 public:
  using State = Registration::State;
  using Found = LinkedList<Registration, &Registration::found>;

  Registrations(const Quota& quota, OwnerActions& actions) : quota_(quota), actions_(actions) {}

  /// Returns null if it is absent.
  Registration* find(Bucket bucket) const { return all_.find(0, bucket); }
  /// Returns null if that registration is in another state.
  Registration* find(BucketRef ref, State state) const {
    Registration* const at = find(ref.bucket);
    return at && at->epoch == ref.epoch && at->state == state ? at : nullptr;
  }
  Found in(BucketRange buckets) const;

  /// Makes room for one more. Throws bad_alloc, without effect.
  void reserve() {
    pool_.reserve(1);
    all_.reserve(1);
  }
  /// Adds an absent bucket; it waits for room.
  Registration& add(Bucket bucket);
  /// Forgets one that waits, or whose registration has failed or ended.
  void remove(Registration& of);

  /// Starts the registrations that have room, and deregisters idle ones for those that have none.
  void start();
  void pinned(Registration& of, const RemoteParts& parts);
  void failed();
  /// Waits anew if it was wanted meanwhile; else its caller removes it.
  void unpinned(Registration& of);

  /// Its last holder has left. Deregisters the oldest idle one if there are too many.
  void make_idle(Registration& of);
  void leave_idle(Registration& of) { fifo_.erase(of); }
  void unpin(Registration& of);
  /// Deregisters idle ones until the quota is kept.
  void shrink();

  /// True: one more registration would come late, as so many queue; each peer would also remember the queue
  /// as the cost of a move.
  bool is_congested() const {
    return quota_.sharing == Sharing::lending && is_full() && queued() >= kMostQueued;
  }
  /// The cost of a move for a peer now, in ns. While memory is left, a bucket costs its registration once.
  /// After that it costs another's deregistration, too, and waits for those under way.
  std::uint32_t delay() const {
    if (quota_.sharing == Sharing::static_share || !is_full()) return 0;
    const std::uint64_t moves = 1 + queued();
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(static_cast<std::uint64_t>(quota_.move_time) * moves, UINT32_MAX));
  }
  bool is_full() const { return registered_ >= quota_.most(); }
  /// Returns null if none waits.
  Registration* first_waiting() const { return waiting_.front(); }

  std::size_t size() const { return all_.size(); }
  /// Registered, or on the way there or back.
  std::uint64_t registered() const { return registered_; }
  std::uint64_t idle() const { return fifo_.size(); }
  std::uint64_t peak() const { return peak_; }
  Epoch last_epoch() const { return last_epoch_; }
  /// f(std::uint64_t) for each value that decides about later events, in a fixed order. For tests.
  template <class F>
  void visit(F&& f) const;

 private:
  using Queue = LinkedList<Registration, &Registration::queue>;
  /// Registrations under way beyond M, with lending.
  static constexpr std::uint64_t kMostQueued = 4;

  /// The number of those that wait or are being registered.
  std::uint64_t queued() const { return waiting_.size() + pinning_; }
  void unpin_oldest();

  const Quota& quota_;
  OwnerActions& actions_;
  BucketTable<Registration> all_;
  Pool<Registration> pool_;
  Queue waiting_;  ///< those that wait for room
  Queue fifo_;     ///< idle
  Epoch last_epoch_ = 0;
  std::uint64_t registered_ = 0, peak_ = 0;
  std::uint64_t pinning_ = 0, unpinning_ = 0;
};

template <class F>
void Registrations::visit(F&& f) const {
  all_.for_each([&](const Registration& of) {
    f(of.number());
    f(of.epoch);
    f(static_cast<std::uint64_t>(of.state) * 2 + of.doomed);
    for (const Holder* holder = of.holders.front(); holder; holder = Registration::Holders::next(*holder))
      f(holder->peer.load(std::memory_order_relaxed) * 2 + holder->granted);
  });
  for (const Queue* queue : {&waiting_, &fifo_}) {
    f(queue->size());
    for (const Registration* of = queue->front(); of; of = Queue::next(*of)) f(of->number());
  }
}

}  // namespace pinion::firehose
