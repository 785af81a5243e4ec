// Contents of memory that tests can check: each word depends on its address and on a stamp. Any thread.
#pragma once

#include <cstdint>

#include "base/range.h"

namespace pinion::test {

/// The word at `address` after a fill() with `stamp`.
inline std::uint64_t word_of(Address address, std::uint64_t stamp) {
  return stamp * 0x9e3779b97f4a7c15u ^ address;
}
inline void fill(Range memory, std::uint64_t stamp) {
  for (Address a = memory.begin; a < memory.end; a += sizeof stamp)
    *reinterpret_cast<volatile std::uint64_t*>(a) = word_of(a, stamp);
}
/// Whether `words` are the result of a fill(memory, stamp).
inline bool holds(const std::uint64_t* words, Range memory, std::uint64_t stamp) {
  for (Address a = memory.begin; a < memory.end; a += sizeof stamp) {
    if (*words++ != word_of(a, stamp)) return false;
  }
  return true;
}
inline bool holds(Range memory, std::uint64_t stamp) {
  return holds(reinterpret_cast<const std::uint64_t*>(memory.begin), memory, stamp);
}

}  // namespace pinion::test
