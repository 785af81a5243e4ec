// The arena's addresses, in granules: a segment begins at one, and the arena's tables have an entry for each.
// Set once, before threads allocate, and then only read.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/range.h"

namespace pinion {

struct Granules {
  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  static constexpr std::size_t kMost = 1024;

  Range range;  ///< all addresses; empty without an arena

  static std::size_t count_for(std::size_t bytes) { return (bytes + kBytes - 1) / kBytes; }
  std::size_t count() const { return range.bytes() / kBytes; }
  std::size_t index_of(Address address) const { return (address - range.begin) / kBytes; }
  Range at(std::size_t i) const { return {range.begin + i * kBytes, range.begin + (i + 1) * kBytes}; }

  /// Calls visit(i, part) for the part of the range in each granule.
  template <class Visit>
  void for_each(Range part, Visit&& visit) const {
    while (!part.empty()) {
      const std::size_t i = index_of(part.begin);
      const Address end = std::min(part.end, at(i).end);
      visit(i, Range{part.begin, end});
      part.begin = end;
    }
  }
};

}  // namespace pinion
