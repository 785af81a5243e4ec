// When a bucket is expected to be used again: the initiator's prediction. It is the mean interval of the
// latest uses; the time since the last one counts in, so a bucket that is left alone is expected ever later.
// Values; guarded by their owner's lock.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "firehose/bucket.h"

namespace pinion::firehose {

struct BucketUses {
  Time since = 0;           ///< the window's begin
  std::uint32_t count = 0;  ///< of uses in it

  void add(std::uint32_t uses, Time now) {
    if (count == 0) since = now;
    for (count += uses; count >= kWindow; count /= 2) since += (now - since) / 2;
  }
  /// Until the next use, of a bucket that is used now; kNever: its first.
  Duration expected_at_use(Time now) const {
    return count < 2 ? kNever : (now - since) / static_cast<Duration>(count - 1);
  }
  /// The same at any time. At most as long as at its uses: where all buckets are used in turn, a held one
  /// wins.
  Duration expected(Time now) const { return (now - since) / static_cast<Duration>(std::max(count, 1u)); }

  static constexpr std::uint32_t kWindow = 32;
};

/// Of buckets that are not held, as many as fit: a hash table of one place a bucket. A newcomer takes the
/// place of one that was used as often since.
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
