// Bytes over time, while time passes: the peak and the integral, without keeping the steps. One thread.
#pragma once

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace pinion::simulate {

/// Changes come in order of time; those at one instant count together, so that levels of zero length are left
/// out.
class Level {
 public:
  explicit Level(Time start) : last_(start) {}

  void change(Time time, std::int64_t bytes) {
    advance(time);
    level_ += bytes;
  }
  /// At `time` it is certain that the level has been higher since `since`.
  void change_since(Time since, Time time, std::int64_t bytes) {
    change(time, bytes);
    byte_ns_ += static_cast<double>(bytes) * static_cast<double>(time - since);
  }
  void advance(Time time) {
    if (time <= last_) return;
    peak_ = std::max(peak_, level_);
    byte_ns_ += static_cast<double>(level_) * static_cast<double>(time - last_);
    last_ = time;
  }

  std::uint64_t peak() const { return static_cast<std::uint64_t>(std::max<std::int64_t>(peak_, 0)); }
  double byte_ns() const { return byte_ns_; }

 private:
  Time last_;
  std::int64_t level_ = 0, peak_ = 0;
  double byte_ns_ = 0;
};

/// A level whose changes are reported late, and so out of order between several reporters: each is held back
/// for as long as an earlier one may come.
class LateLevel {
 public:
  explicit LateLevel(Time start) : level_(start), latest_(start) {}

  /// At `now` a change of the level at `time`, past or future, is reported.
  void change(Time now, Time time, std::int64_t bytes) {
    lag_ = std::max(lag_, 2 * (now - time));
    latest_ = std::max(latest_, now);
    changes_.push({time, bytes});
    apply(latest_ - lag_);
  }
  void advance(Time time) {
    apply(time);
    level_.advance(time);
  }

  std::uint64_t peak() const { return level_.peak(); }
  double byte_ns() const { return level_.byte_ns(); }

 private:
  struct Change {
    Time time;
    std::int64_t bytes;
    bool operator>(const Change& other) const { return time > other.time; }
  };
  void apply(Time before) {
    while (!changes_.empty() && changes_.top().time <= before) {
      level_.change(changes_.top().time, changes_.top().bytes);
      changes_.pop();
    }
  }

  Level level_;
  Time latest_;
  /// The lag is at first longer than any registration takes that is not absurdly large.
  Duration lag_ = 20 * kMillisecond;
  std::priority_queue<Change, std::vector<Change>, std::greater<>> changes_;
};

}  // namespace pinion::simulate
