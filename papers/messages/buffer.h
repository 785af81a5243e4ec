// One side's memory of one message, and the parts of it that the wire may use. A part is leased from the
// domain, or passes through a chunk of the bounce pool. Parts are made by the protocols (protocols.h), from
// the message's begin to its end.
// Guarded by its channel; before a channel has it, by the thread that made it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "papers/messages/bounce_pool.h"
#include "pinion/pinion.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

enum class Protocol : unsigned char { automatic, bounce, rendezvous, pipeline, prepared };

struct MessageOptions {
  Protocol protocol = Protocol::automatic;
  std::size_t bounce_below = 0;  ///< automatic: shorter messages are copied; 0: measured at start
  std::size_t pipeline_from = std::size_t{1} << 20;  ///< the pipeline copies shorter messages
  std::size_t piece_bytes = std::size_t{1} << 20;    ///< a piece, which the pipeline registers at once
  std::size_t chunk_bytes = std::size_t{64} << 10;   ///< a bounce buffer
  unsigned chunks = 32;                              ///< bounce buffers in the pool, for all peers
  unsigned depth = 4;                                ///< parts of one message under way at once
  unsigned kind = 0;                                 ///< the kind of the endpoint's active messages
};

enum class Direction : unsigned char { send, receive };

struct Part {
  std::size_t offset = 0;  ///< its place in the message
  std::size_t bytes = 0;
  std::size_t moved = 0;   ///< bytes that the peer has read, or that have arrived
  char* memory = nullptr;  ///< the wire uses it: the user's, or a chunk
  void* descriptor = nullptr;
  RemoteMemory remote;
  pinion_lease lease = PINION_LEASE_INIT;
  Chunk chunk;  ///< without memory: the part is leased
};

class Buffer {
 public:
  Buffer(pinion_domain* domain, BouncePool& pool, const MessageOptions& options, Direction direction,
         char* address, std::size_t bytes)
      : domain_(domain),
        pool_(pool),
        options_(options),
        direction_(direction),
        address_(address),
        bytes_(bytes) {}

  char* address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  const MessageOptions& options() const { return options_; }
  std::size_t copied() const { return copied_; }
  std::size_t rest(std::size_t offset) const { return bytes_ - offset; }

  // State of the choice and of the protocols.
  Protocol protocol = Protocol::bounce;
  bool refused = false;         ///< a registration was: the rest is copied
  bool accepted = false;        ///< the peer has a receive for it: chunks of the larger share
  std::optional<Part> at_hand;  ///< leased before it was asked for

  /// Called before its first part is made.
  void shorten(std::size_t bytes) { bytes_ = bytes; }

  // Each makes the part that begins at `offset`; false: there is none.
  /// Registers the memory where it is unregistered.
  bool lease(std::size_t offset, std::size_t bytes, Part& part);
  /// Leases memory only where it is registered already: to its end, or to the registration's.
  bool lease_registered(std::size_t offset, Part& part);
  /// Copies up to a chunk; a send's data at once, a receive's by deliver().
  bool bounce(std::size_t offset, std::size_t at_most, Part& part);

  /// `bytes` bytes of the message from `offset` on are in the part's memory.
  void deliver(const Part& part, std::size_t offset, std::size_t bytes);
  void give_back(Part& part);

 private:
  unsigned access() const {
    // A buffer that is received into is often sent from as well: one registration serves both.
    return direction_ == Direction::send ? PINION_ACCESS_REMOTE_READ
                                         : PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ;
  }
  bool try_lease(std::size_t offset, std::size_t bytes, Part& part);
  bool finish_lease(std::size_t offset, std::size_t bytes, Part& part);

  pinion_domain* domain_;
  BouncePool& pool_;
  const MessageOptions& options_;
  Direction direction_;
  char* address_;
  std::size_t bytes_;
  std::size_t copied_ = 0;
};

}  // namespace pinion::transfer
