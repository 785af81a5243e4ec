// Moves bytes between the processes of one job: puts, gets, and small active messages. The interface that
// protocols (and firehose) stand on; src/transfer/endpoint/fabric_endpoint.h implements it over libfabric.
// Any thread may call any function at any time. Handlers and done() run on a thread inside progress(),
// without a lock of the endpoint's held; they may post operations, and never block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/error.h"

struct pinion_domain;

namespace pinion::transfer {

/// A process of the job: 0 to peers() - 1. The own number is allowed.
using Peer = std::uint32_t;

/// A key of more than 64 bits (FI_MR_RAW).
struct RawKey {
  static constexpr std::size_t kMost = 40;

  std::uint64_t base = 0;  ///< the registration's begin, as peers address it
  std::uint32_t bytes = 0;
  std::array<unsigned char, kMost> data{};
};

/// Memory of a peer, as the peer's lease names it (remote_memory.h).
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  RawKey raw = {};  ///< replaces `key` if it has bytes
};

/// Registered memory of this process.
struct LocalMemory {
  void* address = nullptr;
  std::size_t bytes = 0;
  void* descriptor = nullptr;  ///< pinion_keys::descriptor
};

/// A put, get or send under way. The caller owns it and keeps it where it is until done() is called, once.
class Operation {
 public:
  /// ECONNRESET: the peer is gone. ECANCELED: the endpoint closes. Else as the provider reports it.
  virtual void done(const Error& error) = 0;

 protected:
  ~Operation() = default;
};

/// Receives active messages of one kind. The payload comes from another process: check all of it.
class MessageHandler {
 public:
  virtual void message(Peer from, const void* payload, std::size_t bytes) = 0;
  /// Called once for each peer that is gone, after the last message of it.
  virtual void gone(Peer peer) = 0;

 protected:
  ~MessageHandler() = default;
};

struct EndpointCapabilities {
  const char* provider = "";
  std::size_t max_message = 0;      ///< bytes of an active message's payload
  std::size_t max_transfer = 0;     ///< bytes of one put or get
  std::size_t max_elements = 1;     ///< elements of the local list of one
  bool automatic_progress = false;  ///< a put to this process completes without a call of its own
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual Peer self() const = 0;
  virtual Peer peers() const = 0;
  virtual const EndpointCapabilities& capabilities() const = 0;
  /// Registers for this endpoint; closed with it.
  virtual pinion_domain* domain() const = 0;

  // Each returns at once. EAGAIN: the queue is full; call progress() and try again.
  // ECONNRESET: the peer is gone. An error leaves `operation` untouched.

  /// Writes the elements, one after another, to a peer. done() without error: the data is in its memory.
  virtual Error put_list(Peer to, std::span<const LocalMemory> from, RemoteMemory target,
                         Operation& operation) = 0;
  virtual Error get_list(Peer from, std::span<const LocalMemory> target, RemoteMemory source,
                         Operation& operation) = 0;
  Error put(Peer to, const LocalMemory& from, const RemoteMemory& target, Operation& operation) {
    return put_list(to, {&from, 1}, target, operation);
  }
  Error get(Peer from, const LocalMemory& target, const RemoteMemory& source, Operation& operation) {
    return get_list(from, {&target, 1}, source, operation);
  }
  /// Sends an active message to the handler `kind` of a peer; the payload is copied before the return.
  /// Messages to one peer arrive in order. `operation` may be null; done(): the payload has left.
  virtual Error send(Peer to, unsigned kind, const void* payload, std::size_t bytes,
                     Operation* operation) = 0;

  /// Ends the connection with a peer: operations with it end (ECONNRESET), and none begins. The peer sees
  /// this process as gone, and must join anew. gone() follows: at once where the provider moves data over TCP
  /// on this node, or its device refuses old keys; else once the peer's process has ended, left, or was
  /// silent for too long. Gets that it may still answer end then, too. Ordinary code.
  virtual void disconnect(Peer peer) = 0;

  /// The peer's process is on this node and has not ended, whether or not the peer is gone. Any thread.
  virtual bool lives(Peer) const { return false; }

  /// `kind` < kKinds; before the first message can come, so before connect().
  virtual void handle(unsigned kind, MessageHandler& handler) = 0;

  /// Completes operations and delivers messages, as many as there are. Returns how many.
  virtual unsigned progress() = 0;
  /// Sleeps until there may be something for progress(), or for `at_most`.
  virtual void wait(Duration at_most) = 0;

  static constexpr unsigned kKinds = 16;
};

}  // namespace pinion::transfer
