// Active messages to peers, kept while the endpoint's queue is full, so that handlers never wait. Messages to
// one peer leave in order. Nothing here throws.
//
// A protocol cannot go on without one of its messages. Where there is no memory to keep it, the peer is noted
// as lost, and the caller of take_lost() closes its connection.
//
// Any thread. Each peer's queue has a mutex of its own, under which the endpoint is called: it calls nothing
// back from there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "firehose/bell.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::firehose {

/// The endpoint's kinds of messages that a job uses.
enum MessageKind : unsigned { kUserMessage, kDataMessage, kControlMessage, kGatheringMessage, kMessageKinds };

class Outbox {
 public:
  /// `bell`: rung for messages that are kept, and for peers that are lost; may be null.
  Outbox(transfer::Endpoint& endpoint, transfer::Peer peers, Bell* bell = nullptr);

  /// A message of two pieces, sent now or later. An error is final: ECONNRESET, EMSGSIZE, ENOMEM. By ENOMEM
  /// the peer is lost, unless the message is the program's own, which learns of it.
  Error send(transfer::Peer to, MessageKind kind, const void* head, std::size_t head_bytes,
             const void* payload = nullptr, std::size_t bytes = 0);
  /// Like send(), but now or not at all: EAGAIN.
  Error try_send(transfer::Peer to, MessageKind kind, const void* head, std::size_t head_bytes,
                 const void* payload = nullptr, std::size_t bytes = 0);
  /// Tries the kept ones again. True: none is left.
  bool flush();
  /// No message is kept, and no peer is lost.
  bool empty() const {
    return kept_.load(std::memory_order_acquire) == 0 && lost_.load(std::memory_order_acquire) == 0;
  }
  /// The next peer that is lost. False: there is none.
  bool take_lost(transfer::Peer& peer);
  /// Asks for the end of the connection with the peer, as if a message to it had found no memory.
  void lose(transfer::Peer peer);
  /// Messages that are kept for that peer.
  std::size_t kept(transfer::Peer peer);
  /// Forgets the messages that are kept for that peer.
  void drop(transfer::Peer peer);

 private:
  struct Kept {
    MessageKind kind;
    std::vector<char> bytes;
  };
  struct Queue {
    Mutex mutex;
    std::deque<Kept> messages GUARDED_BY(mutex);
    bool lost GUARDED_BY(mutex) = false;
  };

  Error post(transfer::Peer to, MessageKind kind, const char* message, std::size_t bytes, bool keep);
  Error keep(Queue& queue, MessageKind kind, const char* message, std::size_t bytes) REQUIRES(queue.mutex);
  void lose(Queue& queue) REQUIRES(queue.mutex);
  void ring_if_needed() {
    if (bell_ && !empty()) bell_->ring();
  }

  transfer::Endpoint& endpoint_;
  const transfer::Peer peers_;
  Bell* const bell_;
  const std::unique_ptr<Queue[]> queues_;
  std::atomic<std::size_t> kept_{0};
  std::atomic<unsigned> lost_{0};  ///< peers
};

}  // namespace pinion::firehose
