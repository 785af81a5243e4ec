// The messages between this process and one peer: matches sends with receives, and moves the parts.
//
//   sender                                        receiver
//   part ready        -- announce(part) -->       meets its receive; makes its own parts
//                     <-- accept --               unless all of it was announced
//   more parts        -- segment(part) -->        get into a part of its own; copies it if that is a chunk
//   part free         <-- pulled --               the segment has been read
//
// A part of the sender's stays leased until the peer has `pulled` it, has refused the message, or is gone.
// A part of the receiver's stays leased until its own gets have ended. Each message of a peer is checked
// against the state here; nonsense ends the channel (EPROTO).
// Guarded by the driver of LargeMessages.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>

#include "papers/messages/buffer.h"
#include "papers/messages/choice.h"
#include "papers/messages/control.h"
#include "papers/messages/inbox.h"
#include "papers/messages/large_messages.h"

namespace pinion::transfer {

struct Outgoing {
  Outgoing(Request& request, const Buffer& buffer) : request(request), buffer(buffer) {}
  Request& request;
  Buffer buffer;
  bool announced = false;
  std::size_t offered = 0;  ///< bytes that the peer may have read
  std::size_t pulled = 0;   ///< bytes that it has
  std::list<Part> parts;    ///< the peer may be reading
};

/// A piece of the peer's memory that may be read.
struct Segment {
  std::size_t offset;
  std::size_t bytes;
  std::size_t left;  ///< bytes that have not arrived
  RemoteMemory source;
};

struct Incoming {
  Incoming(Request& request, const Buffer& buffer) : request(request), buffer(buffer) {}
  Request& request;
  Buffer buffer;
  std::uint64_t message = 0;
  std::size_t announced = 0;  ///< bytes that may be read
  std::size_t covered = 0;    ///< bytes that parts were made for
  std::size_t asked = 0;      ///< bytes that gets were posted for
  std::size_t arrived = 0;
  unsigned gets = 0;  ///< under way
  std::list<Segment> segments;
  std::list<Part> parts;
  Error failure;  ///< it ends after its last get
};

/// A get under way.
struct Get final : Operation {
  Get(Inbox& inbox, Peer peer) : inbox(inbox), peer(peer) {}
  void done(const Error& result) override;

  Inbox& inbox;
  Peer peer;
  std::uint64_t message = 0;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::list<Part>::iterator part;
  std::list<Segment>::iterator segment;
  Error error;
};

/// The parts of LargeMessages that all channels use.
struct ChannelContext {
  Endpoint& endpoint;
  const MessageOptions& options;
  pinion_domain* domain;
  BouncePool& pool;
  RecentBuffers& recent;
  Inbox& inbox;
  bool& again;  ///< set where the endpoint is full: step() once more
};

class Channel {
 public:
  Channel(const ChannelContext& context, Peer peer) : context_(context), peer_(peer) {}

  void send(std::unique_ptr<Outgoing> message);
  void receive(std::unique_ptr<Incoming> message);
  void control(const Control& control);
  void got(std::unique_ptr<Get> get);
  /// Ends all messages; those with gets under way when these have ended.
  void fail(const Error& error);
  /// Posts all operations that are ready.
  void step();

  bool has_gets() const { return gets_ > 0; }
  bool has_unsent() const { return !unsent_.empty(); }

  /// Most messages of one direction that are announced and not finished. A sender keeps to it, a receiver
  /// insists.
  static constexpr std::size_t kMostAnnounced = 1024;
  /// Most segments of a message that are announced and not pulled.
  static constexpr std::size_t kMostSegments = 64;

 private:
  struct Announced {  ///< has met no receive yet
    std::uint64_t message;
    std::size_t total;
    std::size_t bytes;
    RemoteMemory source;
  };

  // Messages to the peer (outgoing.cpp).
  bool accepted(const Control& control);
  bool pulled(const Control& control);
  bool refused(const Control& control);
  void announce_more();
  void offer_more(std::uint64_t number, Outgoing& message);
  void finish(std::map<std::uint64_t, std::unique_ptr<Outgoing>>::iterator message, const Error& error);

  // Messages from the peer (incoming.cpp).
  bool announced(const Control& control);
  bool segment(const Control& control);
  void match(std::unique_ptr<Incoming> message, const Announced& announced);
  void get_more(Incoming& message);
  bool post_get(Incoming& message);
  void finish(Incoming& message);

  void queue(const Control& control);
  void flush();

  ChannelContext context_;
  const Peer peer_;
  Error failed_;
  std::deque<ControlRecord> unsent_;

  std::map<std::uint64_t, std::unique_ptr<Outgoing>> outgoing_;
  std::uint64_t next_outgoing_ = 0;
  std::uint64_t next_announce_ = 0;  ///< outgoing messages before it are announced
  std::size_t outgoing_announced_ = 0;

  std::deque<std::unique_ptr<Incoming>> posted_;
  std::deque<Announced> unmatched_;
  std::map<std::uint64_t, std::unique_ptr<Incoming>> incoming_;  ///< matched
  std::uint64_t next_incoming_ = 0;
  unsigned gets_ = 0;
};

}  // namespace pinion::transfer
