// Recognises misses that walk through a peer's memory by even steps, so that a move takes the buckets ahead
// with it. A value; guarded by its initiator's lock.
#pragma once

#include <cstdint>
#include <utility>

#include "firehose/bucket.h"

namespace pinion::firehose {

class Stride {
 public:
  /// Notes a miss. Returns the step to the next one, as it is expected; 0: it is not.
  Bucket missed(Bucket bucket) {
    const Bucket step = bucket - std::exchange(last_, bucket);
    even_ = step == step_ ? even_ + 1 : 0;
    step_ = step;
    return step == 1 || even_ >= kEvenSteps ? step : 0;
  }
  /// The bucket was asked for ahead of its miss.
  void reached(Bucket bucket) { last_ = bucket; }

 private:
  /// Misses at random places rarely make three even steps.
  static constexpr std::uint32_t kEvenSteps = 2;

  Bucket last_ = 0;         ///< asked for
  Bucket step_ = 0;         ///< distance from the one before it; downwards it wraps
  std::uint32_t even_ = 0;  ///< steps before it of the same length
};

}  // namespace pinion::firehose
