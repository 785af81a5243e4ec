// Messages of any size between the processes of a job: send and receive with requests, over an endpoint's
// active messages and gets. The n-th send to a peer meets the n-th receive from it. Owns the bounce pool and
// a channel for each peer.
//
// The receiver moves all data, by get. So no peer ever holds a key that writes to this process, and a lease
// that ends late or early harms at most a read of the peer's own. fronts.md describes the protocols.
//
// Any thread may call any function at any time. One thread at a time drives the protocols, behind `driver_`;
// it may register memory there. Others meanwhile leave their work in the inbox, which has a short lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/error.h"
#include "papers/messages/buffer.h"
#include "papers/messages/choice.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

class Channel;
class Inbox;

/// A send or receive under way. The caller owns it, and keeps it and the buffer where they are until done().
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }

  // Once it is done:
  /// ECONNRESET: the peer is gone. EMSGSIZE: the message is longer than the receive's buffer (both sides).
  /// EIO: the receiver could not read it. EPROTO: the peer sent nonsense. ECANCELED: close().
  const Error& error() const { return error_; }
  std::size_t bytes() const { return bytes_; }     ///< the message's
  Protocol protocol() const { return protocol_; }  ///< this side's choice
  std::size_t copied() const { return copied_; }   ///< bytes through this side's bounce buffers

 private:
  friend class Channel;
  friend class LargeMessages;
  void begin();
  void complete(const Error& error, std::size_t bytes, const Buffer* buffer);

  std::atomic<bool> done_{true};
  Error error_;
  std::size_t bytes_ = 0;
  std::size_t copied_ = 0;
  Protocol protocol_ = Protocol::automatic;
};

class LargeMessages {
 public:
  struct Result {
    Error error;
    std::unique_ptr<LargeMessages> messages;
  };
  /// Called before the endpoint connects. The object outlives the endpoint, which may call its handler to the
  /// end.
  static Result open(Endpoint& endpoint, const MessageOptions& options);
  LargeMessages(const LargeMessages&) = delete;
  LargeMessages& operator=(const LargeMessages&) = delete;
  ~LargeMessages();

  // Neither waits for the peer. Both may register memory.
  void send(Peer to, const void* data, std::size_t bytes, Request& request);
  void receive(Peer from, void* memory, std::size_t bytes, Request& request);

  /// Moves everything on; then whether the request is done.
  bool test(Request& request);
  const Error& wait(Request& request);
  /// Moves everything on. Returns how much happened.
  unsigned progress();

  /// Ends all requests (ECANCELED), waits for gets under way, and returns all leases and the pool. Before the
  /// endpoint closes, whose domain would still have leases out; no other call may be going on, or follow.
  void close();

  /// The costs, as measured or given.
  const MessageOptions& options() const { return options_; }
  const BouncePool& pool() const { return pool_; }

 private:
  LargeMessages(Endpoint& endpoint, const MessageOptions& options);
  unsigned drive() REQUIRES(driver_);

  Endpoint& endpoint_;
  MessageOptions options_;
  RecentBuffers recent_;
  std::unique_ptr<Inbox> inbox_;

  Mutex driver_;     ///< guards the channels' content, too
  BouncePool pool_;  ///< used under driver_, while channels move
  std::vector<std::unique_ptr<Channel>> channels_;
  std::size_t first_ GUARDED_BY(driver_) = 0;  ///< the channel to begin with: each in turn
  bool again_ GUARDED_BY(driver_) = false;     ///< the endpoint was full
};

}  // namespace pinion::transfer
