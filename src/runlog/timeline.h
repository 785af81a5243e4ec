// Bytes held over time, as a list of changes: the basis of peaks, means and sums over ranks. Pure values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"

namespace pinion::runlog {

class Timeline {
 public:
  /// The level changes by `bytes` at `time`. Any order; in order of time it is cheap.
  void change(Time time, std::int64_t bytes);

  /// This timeline within [begin, end]: bytes held before `begin` are held from then on, and at `end` all are
  /// let go.
  Timeline clipped(Time begin, Time end) const;

  /// The sum of both.
  void add(const Timeline& other);

  struct Level {
    Time time;
    std::uint64_t bytes;  ///< from `time` on
  };
  /// The level after each instant at which it changes, in order of time.
  std::vector<Level> levels() const;

  /// The highest level. Of changes at the same instant, those downwards come first.
  std::uint64_t peak() const;
  /// Integral over all time, in byte nanoseconds; finite where all is let go in the end.
  double byte_ns() const;

  struct Bins {
    std::vector<std::uint64_t> peak, mean;  ///< bytes, of each bin
  };
  /// The level in `count` bins of `width` from `begin` on.
  Bins bins(Time begin, Duration width, std::size_t count) const;

 private:
  struct Change {
    Time time;
    std::int64_t bytes;
    bool upwards() const { return bytes > 0; }
    bool operator<(const Change& o) const { return time != o.time ? time < o.time : upwards() < o.upwards(); }
  };

  std::vector<Change> changes_;  ///< in order
};

}  // namespace pinion::runlog
