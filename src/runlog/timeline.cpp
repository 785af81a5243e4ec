#include "runlog/timeline.h"

#include <algorithm>
#include <utility>

namespace pinion::runlog {

void Timeline::change(Time time, std::int64_t bytes) {
  if (bytes == 0) return;
  const Change change{time, bytes};
  if (changes_.empty() || !(change < changes_.back()))
    changes_.push_back(change);
  else
    changes_.insert(std::upper_bound(changes_.begin(), changes_.end(), change), change);
}

Timeline Timeline::clipped(Time begin, Time end) const {
  Timeline out;
  out.changes_.reserve(changes_.size() + 2);
  std::uint64_t level = 0;  // unsigned: sums of absurd input wrap instead of overflowing
  auto c = changes_.begin();
  for (; c != changes_.end() && c->time <= begin && c->time < end; ++c)
    level += static_cast<std::uint64_t>(c->bytes);
  out.change(begin, static_cast<std::int64_t>(level));
  for (; c != changes_.end() && c->time < end; ++c) {
    level += static_cast<std::uint64_t>(c->bytes);
    out.changes_.push_back(*c);
  }
  out.change(end, static_cast<std::int64_t>(0 - level));
  return out;
}

void Timeline::add(const Timeline& other) {
  const auto own = static_cast<std::ptrdiff_t>(changes_.size());
  changes_.insert(changes_.end(), other.changes_.begin(), other.changes_.end());
  std::inplace_merge(changes_.begin(), changes_.begin() + own, changes_.end());
}

std::vector<Timeline::Level> Timeline::levels() const {
  std::vector<Level> list;
  std::uint64_t level = 0;
  for (const Change& c : changes_) {
    level += static_cast<std::uint64_t>(c.bytes);
    if (!list.empty() && list.back().time == c.time) {
      list.back().bytes = level;
    } else {
      list.push_back({c.time, level});
    }
  }
  return list;
}

std::uint64_t Timeline::peak() const {
  std::uint64_t level = 0;
  std::int64_t peak = 0;
  for (const Change& c : changes_) {
    level += static_cast<std::uint64_t>(c.bytes);
    peak = std::max(peak, static_cast<std::int64_t>(level));
  }
  return static_cast<std::uint64_t>(peak);
}

double Timeline::byte_ns() const {
  double integral = 0;
  std::uint64_t level = 0;
  Time last = 0;
  for (const Change& c : changes_) {
    integral += static_cast<double>(static_cast<std::int64_t>(level)) * static_cast<double>(c.time - last);
    level += static_cast<std::uint64_t>(c.bytes);
    last = c.time;
  }
  return integral;
}

Timeline::Bins Timeline::bins(Time begin, Duration width, std::size_t count) const {
  std::vector<std::uint64_t> peak(count), mean(count);
  std::vector<double> byte_ns(count);
  const Time end = begin + width * static_cast<Duration>(count);
  std::uint64_t level = 0;
  Time now = begin;
  const auto hold_until = [&](Time time) {
    while (now < std::min(time, end)) {
      const auto bin = static_cast<std::size_t>((now - begin) / width);
      const Time until = std::min(time, begin + static_cast<Duration>(bin + 1) * width);
      peak[bin] = std::max(peak[bin], level);
      byte_ns[bin] += static_cast<double>(level) * static_cast<double>(until - now);
      now = until;
    }
  };
  for (const Change& c : changes_) {
    hold_until(c.time);
    level += static_cast<std::uint64_t>(c.bytes);
  }
  hold_until(end);
  for (std::size_t bin = 0; bin < count; ++bin)
    mean[bin] = static_cast<std::uint64_t>(byte_ns[bin] / static_cast<double>(width));
  return {std::move(peak), std::move(mean)};
}

}  // namespace pinion::runlog
