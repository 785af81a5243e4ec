// The median of a kind of operation's times, followed as they come: each moves it by a sixteenth, up or down,
// so that a single long one counts like any other. It begins with the least of the first few: one that waits
// for a connection, or for a core, is many times too long, and the median would follow it down only slowly.
//
// Any thread; concurrent updates may be lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace pinion::firehose {

class TypicalTime {
 public:
  static constexpr std::uint32_t kFirst = 4;

  void add(Duration time) {
    const Duration now = get();
    const std::uint32_t times = times_.load(std::memory_order_relaxed);
    const Duration step = now / 16 + 1;
    if (times >= kFirst) return value_.store(time > now ? now + step : now - step, std::memory_order_relaxed);
    value_.store(times == 0 ? time : std::min(now, time), std::memory_order_relaxed);
    times_.store(times + 1, std::memory_order_relaxed);
  }
  /// 0: none was added.
  Duration get() const { return value_.load(std::memory_order_relaxed); }
  /// 0: so few were added that one long one decides.
  Duration sure() const { return times_.load(std::memory_order_relaxed) < kFirst ? 0 : get(); }

 private:
  std::atomic<Duration> value_{0};
  std::atomic<std::uint32_t> times_{0};
};

}  // namespace pinion::firehose
