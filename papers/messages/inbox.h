// The work that waits for the thread that drives the protocols: from peers, from gets that have ended, and
// from callers. Any thread puts in; its lock is held for that alone. The payloads of peers are parsed here.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "papers/messages/control.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

struct Get;
struct Incoming;
struct Outgoing;

/// The peer sent bytes that are no control message, or more than it may.
struct Nonsense {};
struct Gone {};

struct Event {
  Peer peer;
  std::variant<Control, Nonsense, Gone, std::unique_ptr<Get>, std::unique_ptr<Outgoing>,
               std::unique_ptr<Incoming>>
      what;
};

class Inbox final : public MessageHandler {
 public:
  explicit Inbox(Peer peers) : unread_(peers) {}

  void message(Peer from, const void* payload, std::size_t bytes) override;
  void gone(Peer peer) override { put({peer, Gone{}}); }

  void put(Event event);
  /// All events, in order.
  std::vector<Event> take();
  bool empty();
  /// Drops messages of peers from now on.
  void close();

 private:
  /// Control messages of one peer that wait here; one that keeps to the rules has fewer under way.
  static constexpr std::size_t kMostUnread = std::size_t{1} << 18;

  Mutex mutex_;
  std::vector<Event> events_ GUARDED_BY(mutex_);
  std::vector<std::size_t> unread_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace pinion::transfer
