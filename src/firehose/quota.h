// The number of firehoses that a peer may hold. `static_share` is the paper's: the owner's memory in equal
// parts, for all peers, used or not. `lending` guarantees each peer that share on demand, and lends the rest:
// to any peer that wants more, until it leaves it unused or another one wants its share. Pure values,
// callable from anywhere.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "firehose/bucket.h"

namespace pinion::firehose {

enum class Sharing : std::uint8_t { static_share, lending };

struct Quota {
  Sharing sharing = Sharing::lending;
  std::uint64_t buckets = 0;  ///< M: that peers may hold
  std::uint64_t victims = 0;  ///< MAXVICTIM: that stay registered beside them, held by none
  Peer processes = 1;         ///< processes of the job
  /// Lending: time of a move, that is of a deregistration and a registration. Beyond M, a peer wants a
  /// bucket once its misses by message have cost as much.
  Duration move_time = 0;

  std::uint64_t most() const { return buckets + victims; }
  /// F = M / (bucket * (nodes - 1)).
  std::uint32_t static_firehoses() const {
    return static_cast<std::uint32_t>(buckets / std::max<Peer>(1, processes - 1));
  }
  /// The limit of a peer, before the owner's first answer.
  std::uint32_t first_limit() const {
    const std::uint32_t equal = static_firehoses();
    return sharing == Sharing::static_share ? equal : std::max(equal, kFirstLent);
  }
  /// No bucket at or beyond it is asked for ahead; the paper asks for none. All buckets are below `end`.
  Bucket end_of_walks(Bucket end = ~Bucket{0}) const { return sharing == Sharing::static_share ? 0 : end; }
  /// With fewer free buckets, an owner that lends takes firehoses back.
  std::uint64_t reserve() const { return std::clamp<std::uint64_t>(buckets / 16, 1, kMostReserve); }

  static constexpr std::uint32_t kFirstLent = 16;
  static constexpr std::uint64_t kMostReserve = 16;
};

}  // namespace pinion::firehose
