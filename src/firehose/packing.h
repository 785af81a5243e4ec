// Whether the small pieces of a scattered call travel together, in messages that the target's processor takes
// apart, or each by itself. Both ways are measured, for each order of magnitude of pieces; the faster one is
// taken, and the other one tried at times.
//
// Any thread; concurrent updates may be lost.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace pinion::firehose {

class Packing {
 public:
  /// Larger pieces travel by themselves.
  static constexpr std::size_t kMostBytes = 512;

  /// True: the next call of so many pieces travels together.
  bool together(std::size_t pieces) {
    Magnitude& of = magnitude(pieces);
    const std::uint32_t call = of.calls.load(std::memory_order_relaxed);
    of.calls.store(call + 1, std::memory_order_relaxed);
    const Duration apart = of.best[0].load(std::memory_order_relaxed);
    const Duration packed = of.best[1].load(std::memory_order_relaxed);
    if (apart == 0 || packed == 0) return call % 2 == 1;
    // The slower it is, the more rarely the other one is tried.
    const Duration slower = std::max(apart, packed) / std::min(apart, packed);
    const bool tries = call % (kTries * slower) == 0 || std::has_single_bit(call);
    return (packed < apart) != tries;
  }

  /// Notes the time from the call to its end. The least counts, as others waited for a core or a
  /// registration; it rises slowly.
  void took(std::size_t pieces, bool together, Duration time) {
    std::atomic<Duration>& best = magnitude(pieces).best[together];
    const Duration now = best.load(std::memory_order_relaxed);
    const Duration each = std::max<Duration>(time / static_cast<Duration>(pieces), 1);
    best.store(now == 0 ? each : std::min(each, now + now / 16 + 1), std::memory_order_relaxed);
  }

 private:
  static constexpr Duration kTries = 32;
  struct Magnitude {
    std::atomic<std::uint32_t> calls{0};
    std::array<std::atomic<Duration>, 2> best{};  ///< a piece, apart and together; 0: not measured
  };
  Magnitude& magnitude(std::size_t pieces) {
    return magnitudes_[std::min<std::size_t>(std::bit_width(pieces), magnitudes_.size()) - 1];
  }

  std::array<Magnitude, 12> magnitudes_;
};

}  // namespace pinion::firehose
