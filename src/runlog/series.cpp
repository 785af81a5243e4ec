#include "runlog/series.h"

#include <algorithm>
#include <iterator>

namespace pinion::runlog {

void Series::start(Time now) {
  start_ = last_ = now;
  peak_ = level_;
  byte_ns_ = 0;
  bin_width_ = kFirstBinWidth;
  std::fill(std::begin(bins_), std::end(bins_), SeriesBin{});
  bins_[0].peak_bytes = level_;
}

void Series::step(Time now, std::uint64_t bytes) {
  now = std::max(now, last_);
  while (bin_of(now) >= kSeriesBins) fold();
  while (last_ < now) {
    SeriesBin& bin = bins_[bin_of(last_)];
    const Time bin_end = start_ + static_cast<Time>(bin_of(last_) + 1) * bin_width_;
    const Time until = std::min(bin_end, now);
    const double area = static_cast<double>(level_) * static_cast<double>(until - last_);
    bin.peak_bytes = std::max(bin.peak_bytes, level_);
    bin.byte_ns += area;
    byte_ns_ += area;
    last_ = until;
  }
  level_ = bytes;
  peak_ = std::max(peak_, bytes);
  SeriesBin& bin = bins_[bin_of(now)];
  bin.peak_bytes = std::max(bin.peak_bytes, bytes);
}

void Series::fold() {
  constexpr std::size_t half = kSeriesBins / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const SeriesBin &a = bins_[2 * i], &b = bins_[2 * i + 1];
    bins_[i] = {std::max(a.peak_bytes, b.peak_bytes), a.byte_ns + b.byte_ns};
  }
  std::fill(bins_ + half, bins_ + kSeriesBins, SeriesBin{});
  bin_width_ *= 2;
}

}  // namespace pinion::runlog
