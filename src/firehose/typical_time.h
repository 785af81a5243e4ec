// The median of a kind of operation's times, followed as they come: each moves it by a sixteenth, up or down,
// so that a single long one counts like any other. Any thread; concurrent updates may be lost.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace pinion::firehose {

class TypicalTime {
 public:
  void add(Duration time) {
    const Duration now = get();
    const Duration step = now / 16 + 1;
    value_.store(now == 0 ? time : time > now ? now + step : now - step, std::memory_order_relaxed);
  }
  /// 0: none was added.
  Duration get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Duration> value_{0};
};

}  // namespace pinion::firehose
