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
  std::size_t sum = 0;
  for_each_uncovered(range, [&](Range part) { sum += part.bytes(); });
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
