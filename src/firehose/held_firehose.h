// A firehose at its initiator: the right to use a bucket of a peer, and the operations that wait for it.
//
// Any thread with a use counted reads `parts`; the fields that are not atomic are guarded by the initiator's
// lock.
#pragma once

#include <cstdint>

#include "firehose/bucket_uses.h"
#include "firehose/firehose_word.h"
#include "firehose/messages.h"
#include "firehose/pool.h"

namespace pinion::firehose {

template <class Atomics>
struct BasicFirehose;

/// An operation that waits for a bucket. Its owner keeps it until BasicInitiator::next_answered() returns it.
template <class Atomics = StdAtomics>
struct BasicWaiter {
  BasicWaiter* next = nullptr;
  bool light = false;  ///< small: it goes by message rather than wait for a registration
  BasicFirehose<Atomics>* firehose = nullptr;  ///< the answer: it has a use of it; null: it goes by message
  int error = 0;                               ///< why it goes by message; ECONNRESET: the peer is gone
};

/// Waiters, first come first served.
template <class Atomics>
class WaiterQueue {
 public:
  using Waiter = BasicWaiter<Atomics>;
  void push_back(Waiter& waiter) {
    waiter.next = nullptr;
    (first_ ? last_->next : first_) = &waiter;
    last_ = &waiter;
  }
  /// Returns null if none is left.
  Waiter* pop_front() {
    Waiter* const first = first_;
    if (first) first_ = first->next;
    return first;
  }

 private:
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

template <class Atomics = StdAtomics>
struct alignas(64) BasicFirehose {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;

  BasicFirehoseWord<Atomics> word;
  Atomic<Bucket> bucket{0};
  Atomic<Peer> peer{0};
  Atomic<std::uint32_t> used{0};  ///< times since the hand passed; concurrent uses may be lost
  RemoteParts parts;              ///< written before the word is held
  Epoch epoch = 0;
  BucketUses uses;
  bool slow = false;  ///< wanted ahead, or not granted within a round trip: light waiters go by message
  WaiterQueue<Atomics> waiters;
  Link<BasicFirehose> ring;  ///< links the held and recalled ones of its peer, or those that an event ends
};

}  // namespace pinion::firehose
