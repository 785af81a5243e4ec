// Buckets: a process's address space in pieces of equal size, the unit that firehoses register. Pure values,
// callable from anywhere.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/range.h"

namespace pinion::firehose {

/// A process of the job.
using Peer = std::uint32_t;

/// A bucket's number: its address divided by the bucket's bytes.
using Bucket = std::uint64_t;

/// Numbers the registrations of a process's buckets, in their order. Never reused; 0 is none.
using Epoch = std::uint64_t;

/// One registration of a bucket. Every control message names buckets this way.
struct BucketRef {
  Bucket bucket = 0;
  Epoch epoch = 0;
  bool operator==(const BucketRef&) const = default;
};

struct BucketRange {
  Bucket first = 0;
  std::uint64_t count = 0;
  bool contains(Bucket bucket) const { return bucket - first < count; }
  bool operator==(const BucketRange&) const = default;
};

/// The size of a job's buckets: from addresses to buckets, and back.
class BucketSize {
 public:
  /// A power of two, of whole pages.
  explicit constexpr BucketSize(std::size_t bytes) : shift_(std::countr_zero(bytes)) {}

  std::size_t bytes() const { return std::size_t{1} << shift_; }
  Bucket of(Address address) const { return address >> shift_; }
  Range range(Bucket bucket) const { return {bucket << shift_, (bucket + 1) << shift_}; }
  /// Buckets that the range touches; it is not empty.
  BucketRange touched(Range range) const {
    const Bucket first = of(range.begin);
    return {first, of(range.end - 1) - first + 1};
  }
  /// Buckets above it hold no memory.
  Bucket end() const { return of(kAddressEnd); }

 private:
  int shift_;
};

}  // namespace pinion::firehose
