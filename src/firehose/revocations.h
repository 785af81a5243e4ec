// The revocations that an owner (owner.h) has under way: memory that is about to change once no bucket in it
// is registered any more. Pure values, guarded by the owner's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "firehose/bucket.h"
#include "firehose/owner_actions.h"

namespace pinion::firehose {

class Revocations {
 public:
  /// Throws bad_alloc, without effect. `buckets_left`: buckets in the range that have to go first.
  void begin(Revocation name, BucketRange buckets, Time deadline, std::uint64_t buckets_left) {
    all_.push_back({name, buckets, deadline, buckets_left});
  }
  void end(Revocation name) {
    std::erase_if(all_, [name](const Revoking& of) { return of.name == name; });
  }

  bool covers(Bucket bucket) const {
    return std::any_of(all_.begin(), all_.end(),
                       [bucket](const Revoking& of) { return of.buckets.contains(bucket); });
  }
  /// The bucket's registration has ended. Calls revoked(name) for each revocation that waited for it alone.
  template <class Revoked>
  void bucket_left(Bucket bucket, Revoked&& revoked) {
    for (Revoking& of : all_)
      if (of.buckets.contains(bucket) && --of.left == 0) revoked(of.name);
  }
  /// Takes one off the latest revocation's count. True: none is left.
  bool latest_left() { return --all_.back().left == 0; }

  /// The earliest deadline of those that wait for peers, or kNever.
  Time deadline() const {
    Time first = kNever;
    for (const Revoking& of : all_)
      if (of.left) first = std::min(first, of.deadline);
    return first;
  }
  /// Calls late(buckets) for each whose deadline has passed; once.
  template <class Late>
  void late(Time now, Late&& late) {
    for (Revoking& of : all_) {
      if (of.left == 0 || of.deadline > now) continue;
      of.deadline = kNever;
      late(of.buckets);
    }
  }

  std::size_t size() const { return all_.size(); }
  template <class F>
  void visit(F&& f) const {
    for (const Revoking& of : all_) {
      f(of.name);
      f(of.left);
      f(static_cast<std::uint64_t>(of.deadline));
    }
  }

 private:
  struct Revoking {
    Revocation name;
    BucketRange buckets;
    Time deadline;
    std::uint64_t left;  ///< buckets that are registered still
  };
  std::vector<Revoking> all_;
};

}  // namespace pinion::firehose
