// The arena's addresses, in granules: a segment begins at one, and the arena's tables have an entry for each.
// A granule is a hugepage, and more in arenas beyond 4 GiB. Set once, before threads allocate, and then only
// read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/range.h"
#include "placement/page_source.h"

namespace pinion {

struct Granules {
  static constexpr std::size_t kMost = 2048;
  static constexpr std::size_t kMostAddresses = std::size_t{32} << 30;

  Range range;        ///< all addresses; empty without an arena
  unsigned bits = 0;  ///< a granule has two to the power of this bytes

  /// For an arena of so many bytes.
  static unsigned bits_for(std::size_t bytes) {
    unsigned bits = std::countr_zero(kHugepage);
    while (bytes > kMost << bits) ++bits;
    return bits;
  }
  std::size_t bytes() const { return std::size_t{1} << bits; }
  std::size_t count_for(std::size_t wanted) const { return (wanted + bytes() - 1) >> bits; }
  std::size_t count() const { return range.bytes() >> bits; }
  std::size_t index_of(Address address) const { return (address - range.begin) >> bits; }
  Range at(std::size_t i) const { return {range.begin + (i << bits), range.begin + ((i + 1) << bits)}; }
  /// The first granule's begin that is not below the address.
  Address ceil(Address address) const { return range.begin + (count_for(address - range.begin) << bits); }

  /// The last granule's begin that is not above the address.
  Address floor(Address address) const { return at(index_of(address)).begin; }

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
