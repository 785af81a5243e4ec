#include "runlog/timeline.h"

#include <algorithm>

namespace pinion::runlog {

std::vector<Timeline::Change> Timeline::sorted() const {
  std::vector<Change> list = changes_;
  std::sort(list.begin(), list.end());
  return list;
}

Timeline Timeline::clipped(Time begin, Time end) const {
  Timeline out;
  std::uint64_t before = 0, level = 0;  // unsigned: sums of absurd input wrap instead of overflowing
  for (const Change& c : changes_) {
    if (c.time >= end) continue;
    level += static_cast<std::uint64_t>(c.bytes);
    if (c.time <= begin) {
      before += static_cast<std::uint64_t>(c.bytes);
    } else {
      out.changes_.push_back(c);
    }
  }
  out.change(begin, static_cast<std::int64_t>(before));
  out.change(end, static_cast<std::int64_t>(0 - level));
  return out;
}

void Timeline::add(const Timeline& other) {
  changes_.insert(changes_.end(), other.changes_.begin(), other.changes_.end());
}

std::vector<Timeline::Level> Timeline::levels() const {
  std::vector<Level> list;
  std::uint64_t level = 0;
  for (const Change& c : sorted()) {
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
  for (const Change& c : sorted()) {
    level += static_cast<std::uint64_t>(c.bytes);
    peak = std::max(peak, static_cast<std::int64_t>(level));
  }
  return static_cast<std::uint64_t>(peak);
}

double Timeline::byte_ns() const {
  double integral = 0;
  std::uint64_t level = 0;
  Time last = 0;
  for (const Change& c : sorted()) {
    integral += static_cast<double>(static_cast<std::int64_t>(level)) * static_cast<double>(c.time - last);
    level += static_cast<std::uint64_t>(c.bytes);
    last = c.time;
  }
  return integral;
}

}  // namespace pinion::runlog
