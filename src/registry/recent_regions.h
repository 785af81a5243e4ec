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
  Region* lookup(Address begin) const {
    const Slot& slot = slots_[index(begin)];
    return slot.begin == begin ? slot.region : nullptr;
  }
  /// Fetches the line that a hit will change, while the caller still has other things to do: the helper, on
  /// another core, may have written it last.
  void prefetch(Address begin) const {
    if (const void* region = lookup(begin)) __builtin_prefetch(region, 1);
  }
  void remember(Address begin, Region* region) { slots_[index(begin)] = {begin, region}; }

 private:
  // The begin is kept beside the region, so that a wrong guess costs no look at a region that is not wanted.
  struct Slot {
    Address begin = 0;
    Region* region = nullptr;
  };
  static constexpr unsigned kBits = 10;
  static std::size_t index(Address begin) {
    return static_cast<std::size_t>((begin * 0x9E3779B97F4A7C15ull) >> (64 - kBits));
  }
  std::array<Slot, std::size_t{1} << kBits> slots_{};
};

}  // namespace pinion
