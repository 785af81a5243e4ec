// Host memory that a call of the program uses: rows of bytes at equal distances, in layers at equal
// distances. A run of bytes is one row. What lies between the rows is none of the call's.
//
// Plain values; any thread. touch() takes blocks in order: order() puts them so.
#pragma once

#include <algorithm>
#include <span>

#include "base/range.h"

namespace pinion::cuda {

/// The smallest range that is worth a registration. Gaps that are smaller hold none.
inline constexpr std::size_t kLeastRegistered = std::size_t{64} << 10;

struct Block {
  Range first;  ///< the first row
  /// The distances are no smaller than what they lead over.
  std::size_t pitch = 0, rows = 1;
  std::size_t slice = 0, layers = 1;
  Address reach = 0;  ///< in order: the end of this block and of all before it

  Block() = default;
  Block(Range range) : first(range), reach(range.end) {}  // NOLINT(google-explicit-constructor)

  bool empty() const { return first.empty(); }
  /// Returns what lies from the first byte to the last.
  Range hull() const {
    return {first.begin, empty() ? first.begin : first.end + (layers - 1) * slice + (rows - 1) * pitch};
  }
  bool touches(Range range) const;
};

/// Puts blocks in order, and returns those that are left: empty ones go, runs of bytes become one with those
/// that they overlap or nearly touch.
std::span<const Block> order(std::span<Block> blocks);

/// Extends a run of bytes by another one that begins no earlier. False: something may lie between them.
inline bool extend(Range& run, Range next) {
  if (next.begin < run.begin || next.begin >= run.end + kLeastRegistered) return false;
  run.end = std::max(run.end, next.end);
  return true;
}

/// Whether any of the blocks touches the range. They are in order.
bool touch(std::span<const Block> blocks, Range range);

}  // namespace pinion::cuda
