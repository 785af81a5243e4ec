// Registered bytes over time in a fixed number of bins: a run of any length fits, because the bins double
// their width (pairs are folded) whenever the run outgrows them. Peak and integral are kept beside the bins
// and do not depend on their width. Never allocates; not thread-safe: the owner guards it.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "runlog/format.h"

namespace pinion::runlog {

class Series {
 public:
  static constexpr Duration kFirstBinWidth = 100 * kMicrosecond;

  /// Begins anew at `now`: earlier values are forgotten, except for the level.
  void start(Time now);

  /// The level is `bytes` from `now` on. Times before the last one count as the last one, so a clock read
  /// before the owner's guard was taken is harmless.
  void step(Time now, std::uint64_t bytes);
  /// Adds a part of the past to the integral alone, of the bin at last().
  void credit(double byte_ns) {
    byte_ns_ += byte_ns;
    bins_[bin_of(last_)].byte_ns += byte_ns;
  }
  /// The level still holds at `now`: brings the bins and the integral up to date.
  void advance(Time now) { step(now, level_); }

  Time started() const { return start_; }
  Time last() const { return last_; }
  std::uint64_t level() const { return level_; }
  std::uint64_t peak() const { return peak_; }
  /// Integral of the level from started() to last(), in byte nanoseconds.
  double byte_ns() const { return byte_ns_; }

  Duration bin_width() const { return bin_width_; }
  /// kSeriesBins of them; those after last() are zero.
  const SeriesBin* bins() const { return bins_; }

 private:
  void fold();
  std::uint64_t bin_of(Time t) const { return static_cast<std::uint64_t>((t - start_) / bin_width_); }

  Time start_ = 0;
  Time last_ = 0;
  std::uint64_t level_ = 0;
  std::uint64_t peak_ = 0;
  double byte_ns_ = 0;
  Duration bin_width_ = kFirstBinWidth;
  SeriesBin bins_[kSeriesBins] = {};
};

}  // namespace pinion::runlog
