// The control messages of firehose, between an initiator (it puts and gets) and an owner (the memory is its
// own). Both rely on their order: a peer's messages arrive in the order in which it sent them.
//
//   initiator -> owner    Move      wants buckets, releases others to make room; a small put may ride along
//                         Release   firehoses whose uses have ended: recalled, or given back
//   owner -> initiator    Answer    grants and refusals of wanted buckets
//                         Recall    release your firehoses in these buckets
//                         Limit     hold fewer
//
// Decoding trusts no byte. Stateless, callable from anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "base/clock.h"
#include "base/range.h"
#include "firehose/bucket.h"

namespace pinion::firehose {

/// Most buckets of a Move, wanted and released each.
constexpr unsigned kMostMoved = 4;
/// Most firehoses of a Release.
constexpr unsigned kMostReleased = 16;
/// Most parts of a bucket: its memory may have holes.
constexpr unsigned kMostParts = 4;

/// A list of at most `Most` items, in place.
template <class T, unsigned Most>
struct List {
  T items[Most]{};
  unsigned count = 0;

  bool full() const { return count == Most; }
  void add(const T& item) { items[count++] = item; }
  const T* begin() const { return items; }
  const T* end() const { return items + count; }
  bool operator==(const List& other) const {
    if (count != other.count) return false;
    for (unsigned i = 0; i < count; ++i)
      if (!(items[i] == other.items[i])) return false;
    return true;
  }
};

struct Move {
  List<Bucket, kMostMoved> wanted;
  List<BucketRef, kMostMoved> victims;
  Duration expected = kNever;  ///< ns until the first of them is used again
  bool operator==(const Move&) const = default;
};

struct Release {
  List<BucketRef, kMostReleased> firehoses;
  bool operator==(const Release&) const = default;
};

/// Memory that peers may use: a part of a bucket, or all of it.
struct RemotePart {
  Address begin = 0;  ///< the memory, as its owner addresses it
  Address end = 0;
  std::uint64_t address = 0;  ///< the name of `begin` in puts and gets
  std::uint64_t key = 0;
  bool operator==(const RemotePart&) const = default;
};

/// The parts of one bucket; they share no byte. Items beyond the count are empty.
using RemoteParts = List<RemotePart, kMostParts>;

/// The one that holds the range; null: none.
inline const RemotePart* part_of(const RemoteParts& parts, Range range) {
  for (const RemotePart& part : parts.items)
    if (part.begin <= range.begin && range.end <= part.end) return &part;
  return nullptr;
}

struct Grant {
  BucketRef ref;
  RemoteParts parts;
  bool operator==(const Grant&) const = default;
};

/// `error`: EBUSY, its memory is about to change; ENOSPC, the owner has no room; EDQUOT, the peer holds its
/// share; EPERM, not exposed; else as its registration failed. The operation goes by message.
struct Refusal {
  Bucket bucket = 0;
  int error = 0;
  bool operator==(const Refusal&) const = default;
};

struct Answer {
  std::uint32_t limit = 0;  ///< firehoses the peer may hold from now on
  std::uint32_t delay = 0;  ///< ns that a move costs the owner now; 0: its memory has room
  List<Grant, kMostMoved> grants;
  List<Refusal, kMostMoved> refusals;
  bool operator==(const Answer&) const = default;
};

/// Concerns the firehoses of these buckets up to that epoch.
struct Recall {
  BucketRange buckets;
  Epoch last = 0;
  bool operator==(const Recall&) const = default;
};

struct Limit {
  std::uint32_t limit = 0;  ///< firehoses the peer may hold from now on
  std::uint32_t spare = 0;  ///< firehoses that it should give back beyond that, if it expects to use them
  Duration later = 0;       ///< later than so many ns
  bool operator==(const Limit&) const = default;
};

using Message = std::variant<Move, Release, Answer, Recall, Limit>;

/// Bytes that a message may take.
constexpr std::size_t kMostMessage = 704;

/// Writes a message to `wire`, of kMostMessage bytes; returns its bytes.
std::size_t encode(const Message& message, void* wire);

struct Decoded {
  Message message;
  std::size_t bytes = 0;  ///< its own. A Move's rider follows.
};
/// None: damaged, or about buckets that no memory has. Only a Move may be followed by further bytes.
std::optional<Decoded> decode(const void* wire, std::size_t bytes, BucketSize size);

}  // namespace pinion::firehose
