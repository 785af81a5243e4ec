// A thread's memory of where its ranges were found last: direct-mapped by the request's first byte.
// Owned and used by one thread. What it says is a hint that the region itself confirms.
#pragma once

#include <array>
#include <cstdint>

#include "base/range.h"

namespace pinion {

struct Region;

class RecentRegions {
 public:
  Region* lookup(Address begin) const { return slots_[slot(begin)]; }
  void remember(Address begin, Region* region) { slots_[slot(begin)] = region; }

 private:
  static constexpr unsigned kBits = 8;
  static std::size_t slot(Address begin) {
    return static_cast<std::size_t>((begin * 0x9E3779B97F4A7C15ull) >> (64 - kBits));
  }
  std::array<Region*, std::size_t{1} << kBits> slots_{};
};

}  // namespace pinion
