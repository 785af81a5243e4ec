// The initiator's prediction when a bucket is used again. It is the mean interval of the
// latest uses; the time since the last one counts in, so a bucket that is left alone is expected ever later.
// Uses at random times make the mean of n of them vary by about a sqrt(n)-th. Two buckets are compared by the
// bounds that this leaves: the latest time of one, the earliest of the other. So those that are used alike
// rarely replace each other.
// Values; guarded by their owner's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "firehose/bucket.h"

namespace pinion::firehose {

struct BucketUses {
  Time since = 0;           ///< the window's begin
  std::uint32_t count = 0;  ///< uses in it

  void add(std::uint32_t uses, Time now) {
    if (count == 0) since = now;
    for (count += uses; count >= kWindow; count /= 2) since += (now - since) / 2;
  }
  /// The latest until the next use, of a bucket that is used now; kNever: its uses are too few.
  Duration latest_at_use(Time now) const {
    const double intervals = count == 0 ? 0 : count - 1;
    const double least = intervals - std::sqrt(intervals);
    return least <= 0 ? kNever : static_cast<Duration>(static_cast<double>(now - since) / least);
  }
  /// The earliest, at any time.
  Duration earliest(Time now) const {
    const double uses = std::max(count, 1u);
    return static_cast<Duration>(static_cast<double>(now - since) / (uses + std::sqrt(uses)));
  }

  static constexpr std::uint32_t kWindow = 32;
};

/// Uses of buckets that are not held, as many as fit: a hash table of one place a bucket. A newcomer takes
/// the place of one that was used as often since.
class UsesElsewhere {
 public:
  /// Room for so many, at least. Where it grows, it forgets.
  void reserve(std::size_t buckets) {
    if (places_.size() < buckets) places_.assign(std::bit_ceil(buckets), {});
  }

  /// A use now.
  BucketUses add(Peer peer, Bucket bucket, Time now) {
    Place& place = at(peer, bucket);
    if (!place.is(peer, bucket)) {
      if (place.uses.count > 1) {
        --place.uses.count;
        return {now, 1};
      }
      place = {bucket, peer, {}};
    }
    place.uses.add(1, now);
    return place.uses;
  }
  /// It was held until now.
  void put(Peer peer, Bucket bucket, const BucketUses& uses) {
    if (!places_.empty()) at(peer, bucket) = {bucket, peer, uses};
  }

 private:
  struct Place {
    Bucket bucket = 0;
    Peer peer = 0;
    BucketUses uses;
    bool is(Peer of, Bucket number) const { return bucket == number && peer == of && uses.count > 0; }
  };
  Place& at(Peer peer, Bucket bucket) {
    const std::uint64_t h = (bucket + (std::uint64_t{peer} << 45)) * 0x9E3779B97F4A7C15ull;
    return places_[(h ^ h >> 32) & (places_.size() - 1)];
  }

  std::vector<Place> places_;
};

}  // namespace pinion::firehose
