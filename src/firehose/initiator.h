// The initiator: which buckets of its peers this process may put to and get from. A pure protocol object: a
// call brings an event; next_message() and next_answered() return the actions that it asks for. No threads,
// no clock, no I/O. It is driven by initiating.h on a process's own clock, by the simulator, and by the
// exhaustive test.
//
//   try_use(), end_use()   any thread, no lock: one atomic read-modify-write each. This is a hit.
//   all else               one thread at a time, under the caller's lock; it takes all actions of an event
//                          under the same lock, before the next event
//
// An operation counts a use before it posts, and ends it when its data has been delivered. A recalled
// firehose takes no new use; it is released with its last one. So after its release no operation touches the
// bucket. A use never waits for another firehose, so operations cannot block each other. An operation over
// several buckets is several uses.
//
// need() alone allocates; where that fails, operations go by message. So no event that has begun fails.
//
// Each peer's firehoses form a ring. Its hand passes some for each choice, and takes the unused one that is
// expected latest (bucket_uses.h); before at() was called, one unused since the hand last passed.
#pragma once

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/clock.h"
#include "firehose/bucket_table.h"
#include "firehose/bucket_uses.h"
#include "firehose/held_firehose.h"
#include "firehose/messages.h"
#include "firehose/pool.h"
#include "firehose/stride.h"

namespace pinion::firehose {

template <class Atomics = StdAtomics>
class BasicInitiator {
 public:
  using Firehose = BasicFirehose<Atomics>;
  using Waiter = BasicWaiter<Atomics>;

  /// `first_limit`: firehoses at each peer, until the peer sends another. Buckets ahead are asked for below
  /// `end`.
  BasicInitiator(Peer peers, std::uint32_t first_limit, Bucket end = ~Bucket{0}) : end_(end), peers_(peers) {
    for (PeerState& peer : peers_) peer.limit = first_limit;
  }

  // ---- any thread ----

  /// Returns null if need() decides.
  Firehose* try_use(Peer peer, Bucket bucket) {
    typename BasicFirehoseWord<Atomics>::Value seen;
    Firehose* firehose = table_.find(peer, bucket, [&](const Firehose& each) { seen = each.word.load(); });
    // It may have become another bucket's since. Then it is of a later generation than `seen`.
    if (!firehose || !firehose->word.try_use(seen)) return nullptr;
    count_use(*firehose);
    return firehose;
  }

  /// True: the caller calls drained(), under its lock.
  [[nodiscard]] bool end_use(Firehose& firehose) { return firehose.word.end_use(); }

  // ---- under the caller's lock: actions ----

  struct Sent {
    Peer to;
    Message message;
  };
  /// The next message that the event asks for. Messages to one peer leave in this order.
  std::optional<Sent> next_message() {
    if (moves_.wanted.count > 0) return Sent{moves_to_, std::exchange(moves_, {})};
    Release release;
    Peer to = 0;
    while (Firehose* const first = released_.front()) {
      const BucketRef ref = ref_of(*first);
      const Peer peer = first->peer.load(std::memory_order_relaxed);
      if (release.firehoses.full() || (release.firehoses.count > 0 && peer != to)) break;
      to = peer;
      firehoses_.put(*released_.pop_front());
      if (!peers_[to].gone) release.firehoses.add(ref);
    }
    if (release.firehoses.count == 0) return {};
    return Sent{to, release};
  }
  /// The next waiter whose wait is over: it has a use of its firehose, or none and an error. Null: none is
  /// left.
  Waiter* next_answered() { return answered_.pop_front(); }

  // ---- under the caller's lock: events ----

  /// The time of the calls that follow. Uses are predicted from then on.
  void at(Time now) { now_ = now; }

  enum class Need : std::uint8_t {
    hit,         ///< the firehose is used
    asks,        ///< the waiter is answered later
    waits,       ///< likewise; the bucket was asked for before
    by_message,  ///< no firehose can be had now
    gone         ///< the peer is
  };
  struct Needed {
    Need what;
    Firehose* firehose = nullptr;
  };

  /// Called after try_use() failed. The caller ends a series of these with flush(), under the same lock.
  Needed need(Peer peer, Bucket bucket, Waiter& waiter) {
    PeerState& at = peers_[peer];
    if (at.gone) return {Need::gone};
    if (Firehose* firehose = table_.find(peer, bucket)) return need_known(*firehose, waiter);
    if (draft_to_ != peer || draft_.wanted.full() || draft_.victims.full()) flush();
    if (!reserve()) return {Need::by_message};
    draft_to_ = peer;
    const BucketUses uses = used_elsewhere(bucket);
    const Duration expected = now_ ? uses.latest_at_use(now_) : 0;
    if (!make_room(at, expected)) return {Need::by_message};
    draft_.expected = std::min(draft_.expected, expected);
    want(at, bucket, uses).waiters.push_back(waiter);
    want_ahead(at, bucket);
    return {Need::asks};
  }

  /// Makes a message of the move that need() has gathered. False: it has gathered none.
  bool flush() {
    if (draft_.wanted.count == 0) return false;
    PINION_ASSERT(moves_.wanted.count == 0 && "the caller has taken the last one");
    moves_ = std::exchange(draft_, {});
    moves_to_ = draft_to_;
    return true;
  }

  /// The operation of the only waiter travelled with the question for the bucket: it needs no grant.
  void rode(Peer peer, Bucket bucket) { table_.find(peer, bucket)->waiters = {}; }
  /// The operation that travelled with the question has been carried out.
  void rider_ended(Peer peer, Bucket bucket) {
    if (Firehose* firehose = wanted(peer, bucket)) firehose->slow = true;
  }

  /// Sets the time that an operation takes by a firehose, by message, and as the rider of a question. Moves
  /// beyond the peers' memory then wait until their cost is spent on messages; before the first call, until
  /// the kFirstPace-th miss. The peer measures its registrations; a rider is late by all else that a move
  /// costs.
  void operations_take(Duration held, Duration by_message, Duration riding = 0) {
    saving_ = std::max({by_message - held, by_message / kLeastSaving, Duration{1}});
    asking_ = std::max(riding - by_message, Duration{0});
  }

  void answer(Peer from, const Answer& answer) {
    PeerState& peer = peers_[from];
    if (peer.gone) return;
    peer.limit = answer.limit;
    peer.delay = answer.delay;
    for (const Grant& grant : answer.grants)
      if (Firehose* firehose = wanted(from, grant.ref.bucket)) granted(peer, *firehose, grant);
    for (const Refusal& refusal : answer.refusals)
      if (Firehose* firehose = wanted(from, refusal.bucket)) refused(peer, *firehose, refusal.error);
  }

  void recall(Peer from, const Recall& recall) {
    PeerState& peer = peers_[from];
    const auto concerns = [&](const Firehose& firehose) {
      return firehose.epoch <= recall.last &&
             recall.buckets.contains(firehose.bucket.load(std::memory_order_relaxed));
    };
    if (recall.buckets.count <= peer.ring.size()) {
      for (std::uint64_t i = 0; i < recall.buckets.count; ++i) {
        Firehose* firehose = table_.find(from, recall.buckets.first + i);
        if (firehose && concerns(*firehose)) call_back(from, *firehose);
      }
    } else {
      for (Firehose *firehose = peer.ring.front(), *next = nullptr; firehose; firehose = next) {
        next = Ring::next(*firehose);
        if (concerns(*firehose)) call_back(from, *firehose);
      }
    }
  }

  void limit(Peer from, const Limit& limit) {
    PeerState& peer = peers_[from];
    if (peer.gone) return;
    peer.limit = limit.limit;
    while (peer.ring.size() - peer.recalled > peer.limit) {
      Firehose* firehose = choose(peer, kAny);
      if (!firehose) break;
      call_back(from, *firehose);
    }
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(limit.spare, kMostReleased); ++i) {
      Firehose* firehose = choose(peer, limit.later);
      if (!firehose) break;
      call_back(from, *firehose);
    }
  }

  /// end_use() returned true.
  void drained(Firehose& firehose) {
    const Peer peer = firehose.peer.load(std::memory_order_relaxed);
    firehose.word.end();
    --peers_[peer].recalled;
    let_go(peer, firehose);
  }

  /// The peer's connection is closed. Its waiters are refused.
  void gone(Peer peer) {
    PeerState& at = peers_[peer];
    if (at.gone) return;
    at.gone = true;
    if (draft_to_ == peer) draft_ = {};
    Ring asked;
    table_.for_each([&](Firehose& firehose) {
      if (wanted(peer, firehose)) asked.push_back(firehose);
    });
    while (Firehose* firehose = asked.pop_front()) refused(at, *firehose, ECONNRESET);
    recall(peer, {{0, ~std::uint64_t{0}}, ~Epoch{0}});
  }

  /// Firehoses at a peer; those recalled and still used included.
  std::uint32_t held(Peer peer) const { return static_cast<std::uint32_t>(peers_[peer].ring.size()); }
  std::uint32_t limit(Peer peer) const { return peers_[peer].limit; }
  /// Firehoses held and wanted at all peers.
  std::size_t size() const { return table_.size(); }
  /// f(const Firehose&) for each of a peer's that are held, in the order of its ring.
  template <class F>
  void for_each(Peer peer, F&& f) const {
    for (const Firehose* firehose = peers_[peer].ring.front(); firehose; firehose = Ring::next(*firehose))
      f(*firehose);
  }

 private:
  using Ring = LinkedList<Firehose, &Firehose::ring>;
  struct PeerState {
    Ring ring;  ///< held and recalled; the hand is at its front
    std::uint32_t wanted = 0;
    std::uint32_t recalled = 0;
    std::uint32_t limit = 0;
    std::uint32_t delay = 0;   ///< see Answer
    std::uint32_t misses = 0;  ///< number since the last miss that asked
    Stride stride;
    bool gone = false;
  };
  /// Firehoses that one choice looks at, so that it takes O(1).
  static constexpr unsigned kMostSteps = 32;
  static constexpr std::uint32_t kFirstPace = 8;
  /// Buckets of which uses are known, for each that is held.
  static constexpr std::size_t kElsewhere = 4;
  /// A firehose saves this part of a message at least: it spares the peer's processor.
  static constexpr Duration kLeastSaving = 8;

  /// Writes to the line of its word, which is this thread's just now.
  static void count_use(Firehose& firehose) {
    firehose.used.store(firehose.used.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Needed need_known(Firehose& firehose, Waiter& waiter) {
    switch (firehose.word.load().state()) {
      case FirehoseState::wanted:
        if (firehose.slow && waiter.light) return {Need::by_message};
        firehose.waiters.push_back(waiter);
        return {Need::waits};
      case FirehoseState::held:
        firehose.word.try_use(firehose.word.load());
        count_use(firehose);
        return {Need::hit, &firehose};
      default:
        return {Need::by_message};
    }
  }

  /// Room for one more bucket, and for those ahead of it. False: out of memory.
  bool reserve() {
    try {
      firehoses_.reserve(kMostMoved);
      table_.reserve(kMostMoved);
      if (now_ != 0) elsewhere_.reserve(kElsewhere * (1 + table_.size()));
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// Uses of a bucket that is not held, this one included.
  BucketUses used_elsewhere(Bucket bucket) {
    if (now_ == 0) return {};
    return elsewhere_.add(draft_to_, bucket, now_);
  }

  /// Adds the bucket to the draft.
  Firehose& want(PeerState& peer, Bucket bucket, const BucketUses& uses) {
    Firehose& firehose = firehoses_.take();
    firehose.peer.store(draft_to_, std::memory_order_relaxed);
    firehose.bucket.store(bucket, std::memory_order_relaxed);
    firehose.uses = uses;
    firehose.slow = false;
    firehose.word.want();
    table_.insert(&firehose);
    ++peer.wanted;
    draft_.wanted.add(bucket);
    return firehose;
  }

  /// Takes buckets ahead: where misses walk through memory by even steps, a move takes the buckets ahead with
  /// it, as far as there is room.
  void want_ahead(PeerState& peer, Bucket bucket) {
    const Bucket step = peer.stride.missed(bucket);
    if (step == 0 || peer.delay > 0) return;
    for (Bucket next = bucket + step; next < end_ && !draft_.wanted.full() && !table_.find(draft_to_, next) &&
                                      peer.ring.size() + peer.wanted < peer.limit;
         next += step) {
      want(peer, next, {now_, 0}).slow = true;
      peer.stride.reached(next);
    }
  }

  /// Makes room for one more at a peer. Victims go into the draft: as many as its limit wants, one at least.
  /// Where a move costs more than a message, they are surely expected later than the bucket. False: it goes
  /// by message.
  bool make_room(PeerState& peer, Duration expected) {
    if (peer.limit == 0) return false;
    const auto over = [&] { return peer.ring.size() + peer.wanted >= peer.limit; };
    const Duration later = now_ && peer.delay ? expected : kUnused;
    if (++peer.misses < pace(peer)) return false;
    bool made = !over();
    while (over() && !draft_.victims.full()) {
      Firehose* victim = choose(peer, later);
      if (!victim) break;
      draft_.victims.add(ref_of(*victim));
      drop(peer, *victim);
      firehoses_.put(*victim);
      made = true;
    }
    if (made) peer.misses = 0;
    return made;
  }

  /// One of so many misses wants its bucket: the others' messages have then cost as much as the move.
  std::uint32_t pace(const PeerState& peer) const {
    if (peer.delay == 0) return 1;
    return saving_ == 0 ? kFirstPace : 1 + static_cast<std::uint32_t>((peer.delay + asking_) / saving_);
  }

  /// Choices of choose(): any unused one; or, where all near the hand are used, one of these.
  static constexpr Duration kUnused = -1, kAny = -2;

  /// The hand moves on. Of the unused ones that it passes, the one expected latest, and later than `later`.
  /// It has ended; with kAny it may be used, and is to be recalled. Null: there is none.
  Firehose* choose(PeerState& peer, Duration later) {
    Firehose* latest = nullptr;
    Firehose* used = nullptr;
    for (std::size_t i = std::min<std::size_t>(peer.ring.size(), kMostSteps); i > 0; --i) {
      Firehose& firehose = peer.ring.rotate();
      const auto word = firehose.word.load();
      if (word.state() != FirehoseState::held) continue;
      if (word.uses()) {
        used = &firehose;
        continue;
      }
      const Duration expected = pass(firehose);
      if (expected <= later) continue;
      latest = &firehose;
      later = expected;
      if (expected == kNever) break;
    }
    if (latest && latest->word.end()) return latest;
    return later == kAny ? used : nullptr;
  }

  /// The hand passes it. Returns when it is expected to be used; not predicted: at once or never, as it was
  /// used since the last time.
  Duration pass(Firehose& firehose) {
    const std::uint32_t used = firehose.used.load(std::memory_order_relaxed);
    if (used) firehose.used.store(0, std::memory_order_relaxed);
    if (now_ == 0) return used ? 0 : kNever;
    firehose.uses.add(used, now_);
    return firehose.uses.earliest(now_);
  }

  Firehose* wanted(Peer peer, Bucket bucket) {
    Firehose* firehose = table_.find(peer, bucket);
    return firehose && wanted(peer, *firehose) ? firehose : nullptr;
  }
  static bool wanted(Peer peer, const Firehose& firehose) {
    return firehose.peer.load(std::memory_order_relaxed) == peer &&
           firehose.word.load().state() == FirehoseState::wanted;
  }

  void granted(PeerState& peer, Firehose& firehose, const Grant& grant) {
    --peer.wanted;
    firehose.parts = grant.parts;
    firehose.epoch = grant.ref.epoch;
    peer.ring.push_back(firehose);
    firehose.used.store(1, std::memory_order_relaxed);
    firehose.word.hold();
    while (Waiter* const waiter = firehose.waiters.pop_front()) {
      firehose.word.try_use(firehose.word.load());
      waiter->firehose = &firehose;
      waiter->error = 0;
      answered_.push_back(*waiter);
    }
  }

  void refused(PeerState& peer, Firehose& firehose, int error) {
    --peer.wanted;
    firehose.word.refuse();
    table_.erase(&firehose);
    firehoses_.put(firehose);
    while (Waiter* const waiter = firehose.waiters.pop_front()) {
      waiter->firehose = nullptr;
      waiter->error = error;
      answered_.push_back(*waiter);
    }
  }

  /// One that is held, or that choose() has ended.
  void call_back(Peer from, Firehose& firehose) {
    switch (firehose.word.load().state()) {
      case FirehoseState::held:
        if (!firehose.word.recall()) {
          ++peers_[from].recalled;
          return;
        }
        firehose.word.end();
        [[fallthrough]];
      case FirehoseState::absent:
        let_go(from, firehose);
        return;
      default:
        return;
    }
  }

  /// It has ended: its release is the event's.
  void let_go(Peer peer, Firehose& firehose) {
    drop(peers_[peer], firehose);
    released_.push_back(firehose);
  }
  void drop(PeerState& peer, Firehose& firehose) {
    peer.ring.erase(firehose);
    if (now_)
      elsewhere_.put(firehose.peer.load(std::memory_order_relaxed),
                     firehose.bucket.load(std::memory_order_relaxed), firehose.uses);
    table_.erase(&firehose);
  }
  static BucketRef ref_of(const Firehose& firehose) {
    return {firehose.bucket.load(std::memory_order_relaxed), firehose.epoch};
  }

  const Bucket end_;
  BucketTable<Firehose, Atomics> table_;
  // Guarded by the caller's lock.
  Time now_ = 0;
  std::vector<PeerState> peers_;
  UsesElsewhere elsewhere_;
  Duration saving_ = 0;  ///< time that a firehose saves against a message; 0: unknown
  Duration asking_ = 0;  ///< delay of the operation that asks
  Pool<Firehose> firehoses_;
  Move draft_, moves_;  ///< gathered by need(); the event's, for next_message()
  Peer draft_to_ = 0, moves_to_ = 0;
  Ring released_;                  ///< what the event has released, for next_message()
  WaiterQueue<Atomics> answered_;  ///< what the event has answered, for next_answered()
};

using Firehose = BasicFirehose<>;
using Waiter = BasicWaiter<>;
using Initiator = BasicInitiator<>;

}  // namespace pinion::firehose
