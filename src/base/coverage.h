// Counts for each page (or byte) how often it is covered: a counted union of ranges. Its owner adds and
// removes ranges that may overlap (registered bytes, locked pages), and receives the parts that enter or
// leave the union. The owner guards it. It allocates, so it is for ordinary code, outside of hooks and spin
// locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

#include "base/range.h"

namespace pinion {

class Coverage {
  struct Ignore {
    void operator()(Range) const {}
  };

 public:
  /// Counts `range` once more and returns the bytes by which the union grew. `newly_covered` is called, in
  /// order of address, for each maximal sub-range that nothing covered before; it must not call back into
  /// this object.
  template <class F = Ignore>
  std::size_t add(Range range, F&& newly_covered = {}) {
    return change(range, [&](Count& count, Range part) {
      if (count++ != 0) return std::size_t{0};
      newly_covered(part);
      bytes_ += part.bytes();
      return part.bytes();
    });
  }

  /// Counts `range` once less and returns the bytes that left the union; `newly_uncovered` as above.
  /// Uncovered parts (erased meanwhile) stay so.
  template <class F = Ignore>
  std::size_t remove(Range range, F&& newly_uncovered = {}) {
    return change(range, [&](Count& count, Range part) {
      if (count == 0 || --count != 0) return std::size_t{0};
      newly_uncovered(part);
      bytes_ -= part.bytes();
      return part.bytes();
    });
  }

  /// Forgets every count in `range` (its memory is gone) and returns the bytes that left the union. The
  /// caller must not remove() the forgotten parts once something new is counted there.
  std::size_t erase(Range range);

  /// Bytes of the union.
  std::size_t bytes() const { return bytes_; }

  /// Bytes by which add(range) would make the union grow.
  std::size_t would_add(Range range) const;

  /// Calls `f` for the maximal uncovered sub-ranges of `range`, in order of address.
  template <class F>
  void for_each_uncovered(Range range, F&& f) const {
    auto step = steps_.upper_bound(range.begin);
    Count count = step == steps_.begin() ? 0 : std::prev(step)->second;
    for (Address at = range.begin; at < range.end;) {
      const Address end = step == steps_.end() ? range.end : std::min(step->first, range.end);
      if (count == 0) f(Range{at, end});
      at = end;
      if (step != steps_.end()) count = (step++)->second;
    }
  }

  /// Whether every byte of `range` is covered (true for an empty range).
  bool covers(Range range) const { return would_add(range) == 0; }

 private:
  using Count = std::uint32_t;
  /// The counts: an entry's count holds from its address to the next entry's. Before the first entry and
  /// after the last it is 0, and neighbours differ, so the map is as small as the union is simple.
  using Steps = std::map<Address, Count>;

  /// Makes `at` a step, so that the counts on either side may change alone.
  Steps::iterator split(Address at);
  /// Removes the steps from `first` to `last`, both included, that no longer change the count.
  void coalesce(Steps::iterator first, Steps::iterator last);

  /// Lets `f(count, part)` change each count within `range` and returns the sum of its results.
  template <class F>
  std::size_t change(Range range, F&& f) {
    if (range.empty()) return 0;
    const auto first = split(range.begin);
    const auto last = split(range.end);
    std::size_t sum = 0;
    for (auto step = first; step != last;) {
      const auto next = std::next(step);
      sum += f(step->second, Range{step->first, next->first});
      step = next;
    }
    coalesce(first, last);
    return sum;
  }

  Steps steps_;
  std::size_t bytes_ = 0;
};

}  // namespace pinion
