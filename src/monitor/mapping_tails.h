// Tails of mappings: memory that lies behind a mapping of the program's, up to the end of its last hugepage,
// and that the program knows nothing of. With it the mapping lies in hugepages as a whole. A tail goes with
// the first change of the memory in front of it, since the program may have that place in mind. It also goes
// when the program names its place, and when the program's calls lack memory or addresses.
//
// Owns the tails. Lock-free: hooks of any thread, signal handlers, children of vfork.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/range.h"
#include "monitor/memory_calls.h"

namespace pinion {

class MappingTails {
 public:
  static constexpr std::size_t kMost = 64;

  /// Whole pages that have just been mapped. False: there are too many.
  bool add(Range tail) {
    for (auto& place : places_) {
      std::uint64_t free = 0;
      if (!place.compare_exchange_strong(free, word_of(tail), std::memory_order_relaxed)) continue;
      count_.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    return false;
  }
  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  /// Hands over the tails of the mappings that end in the range, or right behind it, and tails in the range.
  /// Each is handed over once, to one thread.
  template <class Use>
  void take(Range changing, Use&& use) {
    if (changing.empty()) return;
    for (auto& place : places_) {
      std::uint64_t word = place.load(std::memory_order_relaxed);
      const Range tail = tail_of(word);
      if (word == 0 || changing.end < tail.begin || tail.end <= changing.begin) continue;
      if (!place.compare_exchange_strong(word, 0, std::memory_order_relaxed)) continue;
      count_.fetch_sub(1, std::memory_order_relaxed);
      use(tail);
    }
  }
  /// Hands over the tails that lie in the range, at least in part; not the one of a mapping that ends with
  /// it.
  template <class Use>
  void take_inside(Range range, Use&& use) {
    take({range.begin, range.end - 1}, std::forward<Use>(use));
  }

 private:
  // The first page, and the number of pages below it.
  static constexpr unsigned kPagesBits = 16;

  static std::uint64_t word_of(Range tail) {
    return std::uint64_t{tail.begin / page_size()} << kPagesBits | tail.pages();
  }
  static Range tail_of(std::uint64_t word) {
    const Address begin = (word >> kPagesBits) * page_size();
    return {begin, begin + (word & ((1u << kPagesBits) - 1)) * page_size()};
  }

  std::array<std::atomic<std::uint64_t>, kMost> places_{};
  std::atomic<int> count_{0};
};

/// The only object: a process has one set of tails.
extern MappingTails mapping_tails;

/// Makes the mapping that a sink wishes in place of the one that an mmap asks for: maps more, and cuts off
/// both ends. As asked where the system refuses that. `tail`: the mapping's, or empty.
long map_as_wished(const SystemCallArguments& arguments, const ConcernedMemory& memory, Range& tail);

}  // namespace pinion
