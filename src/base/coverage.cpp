#include "base/coverage.h"

#include <algorithm>

namespace pinion {

std::size_t Coverage::erase(Range range) {
  return change(range, [&](Count& count, Range part) {
    if (count == 0) return std::size_t{0};
    count = 0;
    bytes_ -= part.bytes();
    return part.bytes();
  });
}

std::size_t Coverage::would_add(Range range) const {
  if (range.empty()) return 0;
  auto step = steps_.upper_bound(range.begin);
  Count count = step == steps_.begin() ? 0 : std::prev(step)->second;
  std::size_t sum = 0;
  for (Address at = range.begin; at < range.end;) {
    const Address end = step == steps_.end() ? range.end : std::min(step->first, range.end);
    if (count == 0) sum += end - at;
    at = end;
    if (step != steps_.end()) count = (step++)->second;
  }
  return sum;
}

Coverage::Steps::iterator Coverage::split(Address at) {
  const auto step = steps_.lower_bound(at);
  if (step != steps_.end() && step->first == at) return step;
  return steps_.emplace_hint(step, at, step == steps_.begin() ? 0 : std::prev(step)->second);
}

void Coverage::coalesce(Steps::iterator first, Steps::iterator last) {
  Count before = first == steps_.begin() ? 0 : std::prev(first)->second;
  const auto end = std::next(last);
  for (auto step = first; step != end;) {
    if (step->second == before) {
      step = steps_.erase(step);
    } else {
      before = (step++)->second;
    }
  }
}

}  // namespace pinion
