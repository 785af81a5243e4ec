// The actions that an owner (owner.h) asks for: a queue of values, in the order in which they are due. An
// action takes a few words, so that memory for all can be reserved before an event changes anything.
//
// An answer is a row of grants and refusals, which Owner::next() puts together. The queue belongs to its
// owner and is guarded by the owner's lock; only reserve() allocates.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "firehose/bucket.h"
#include "firehose/messages.h"
#include "firehose/pool.h"

namespace pinion::firehose {

/// Names a revocation; its caller chooses it.
using Revocation = std::uint64_t;

struct OwnerAction {
  enum class Kind : std::uint8_t {
    grant,    ///< goes into the answer that follows
    refuse,   ///< goes into the answer that follows
    answer,   ///< a message, as the next two
    recall,   ///< carries `ref` (the first bucket, the last epoch) and `number` of buckets
    limit,    ///< carries `limit`, `delay` (spare) and `number` (later)
    pin,      ///< register `ref`; ends with pinned() or pin_failed()
    unpin,    ///< deregister `ref`; ends with unpinned()
    cut_off,  ///< the peer holds a bucket past the deadline: close its connection; ends with gone()
    revoked   ///< all peers have let go of the memory of `number`; ends with end_revocation()
  };

  bool is_message() const { return kind <= Kind::limit; }

  Kind kind = Kind::answer;
  Peer peer = 0;
  std::uint32_t limit = 0, delay = 0;  ///< an Answer's
  int error = 0;
  BucketRef ref{};
  std::uint64_t number = 0;
  Time since = 0;  ///< set by the executor: when it took the action over
  Link<OwnerAction> link;
};

using OwnerActionList = LinkedList<OwnerAction, &OwnerAction::link>;

class OwnerActions {
 public:
  /// Makes room for so many in all, those at the executor included. Throws bad_alloc, without effect.
  void reserve(std::size_t actions) { pool_.reserve_all(actions); }
  /// Adds an empty action. Allocates only for the end of a revocation that was given up before.
  OwnerAction& add(OwnerAction::Kind kind) {
    pool_.reserve(1);
    OwnerAction& action = pool_.take();
    action = {};
    action.kind = kind;
    list_.push_back(action);
    return action;
  }
  void send(Peer to, const Recall& recall) {
    OwnerAction& action = add(OwnerAction::Kind::recall);
    action.peer = to;
    action.ref = {recall.buckets.first, recall.last};
    action.number = recall.buckets.count;
  }
  void send(Peer to, const Limit& limit) {
    OwnerAction& action = add(OwnerAction::Kind::limit);
    action.peer = to;
    action.limit = limit.limit;
    action.delay = limit.spare;
    action.number = static_cast<std::uint64_t>(limit.later);
  }
  /// Returns null if there is none.
  OwnerAction* pop_front() { return list_.pop_front(); }
  void put(OwnerAction& action) { pool_.put(action); }

 private:
  OwnerActionList list_;
  Pool<OwnerAction> pool_;
};

}  // namespace pinion::firehose
