// Counts for each page (or byte) how often it is covered: a counted union of ranges, or several unions of
// much the same ranges. Its owner adds and removes ranges that may overlap (registered bytes, locked pages),
// and receives the parts that enter or leave a union. The owner guards it. It allocates, so it is for
// ordinary code, outside of hooks and spin locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "base/step_map.h"

namespace pinion {

/// `Unions` of them, whose steps take as much memory as one's where their ranges are the same. Each call is
/// about one, by its number.
template <std::size_t Unions>
class Coverages {
  struct Ignore {
    void operator()(Range) const {}
  };

 public:
  /// Counts `range` once more and returns the bytes by which the union grew. `newly_covered` is called, in
  /// order of address, for each sub-range that nothing covered before, maximal where there is one union; it
  /// must not call back into this object.
  template <std::size_t Which = 0, class F = Ignore>
  std::size_t add(Range range, F&& newly_covered = {}) {
    std::size_t grown = 0;
    steps_.change(range, [&](Range part, Counts& counts) {
      if (counts[Which]++ != 0) return;
      newly_covered(part);
      grown += part.bytes();
    });
    bytes_[Which] += grown;
    return grown;
  }

  /// Counts `range` once less and returns the bytes that left the union; `newly_uncovered` as above.
  /// Uncovered parts (erased meanwhile) stay so.
  template <std::size_t Which = 0, class F = Ignore>
  std::size_t remove(Range range, F&& newly_uncovered = {}) {
    std::size_t left = 0;
    steps_.change(range, [&](Range part, Counts& counts) {
      if (counts[Which] == 0 || --counts[Which] != 0) return;
      newly_uncovered(part);
      left += part.bytes();
    });
    bytes_[Which] -= left;
    return left;
  }

  /// Forgets every count in `range` (its memory is gone) and returns the bytes that left the union. The
  /// caller must not remove() the forgotten parts once something new is counted there.
  template <std::size_t Which = 0>
  std::size_t erase(Range range) {
    std::size_t left = 0;
    steps_.change(range, [&](Range part, Counts& counts) {
      if (counts[Which] != 0) left += part.bytes();
      counts[Which] = 0;
    });
    bytes_[Which] -= left;
    return left;
  }

  /// Bytes of the union.
  template <std::size_t Which = 0>
  std::size_t bytes() const {
    return bytes_[Which];
  }

  /// Bytes by which add(range) would make the union grow.
  template <std::size_t Which = 0>
  std::size_t would_add(Range range) const {
    std::size_t sum = 0;
    for_each_uncovered<Which>(range, [&](Range part) { sum += part.bytes(); });
    return sum;
  }

  /// Calls `f` for the uncovered sub-ranges of `range`, in order of address; maximal ones as above.
  template <std::size_t Which = 0, class F>
  void for_each_uncovered(Range range, F&& f) const {
    steps_.for_each(range, [&](Range part, const Counts& counts) {
      if (counts[Which] == 0) f(part);
    });
  }

  /// Whether every byte of `range` is covered (true for an empty range).
  bool covers(Range range) const { return would_add(range) == 0; }

 private:
  using Counts = std::array<std::uint32_t, Unions>;

  StepMap<Counts> steps_;
  std::array<std::size_t, Unions> bytes_{};
};

using Coverage = Coverages<1>;

}  // namespace pinion
