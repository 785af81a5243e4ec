// The table of the arena's segments: which granules have one, and in what state it is.
//
// Its mutex guards all but is_in_change(); callers take it, and no other lock under it. A thread that gives
// or takes the memory of granules announces it by Changing. Then no mapping of the program gets between the
// look at a granule and the system call: it waits, or is refused.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "placement/granules.h"
#include "placement/heap_mutex.h"

namespace pinion {

struct Segment {
  Range range;               ///< empty: no segment begins at this granule
  bool of_heap = true;       ///< false: the heap has given it back, and its memory stays for now
  bool pinned = false;       ///< a device may have registered it
  bool wanted = false;       ///< it has got its first block, and nobody has looked at it since
  std::uint64_t number = 0;  ///< no other segment ever has it
};

class SegmentTable {
 public:
  constexpr explicit SegmentTable(const Granules& granules) : granules_(granules) {}

  HeapMutex mutex;

  /// The lowest granules for so many bytes that are free, and pass `may_take(granule)`. Empty: there are
  /// none.
  template <class MayTake>
  Range find_free(std::size_t bytes, MayTake&& may_take) const REQUIRES(mutex) {
    const std::size_t wanted = granules_.count_for(bytes);
    std::size_t found = 0;
    for (std::size_t i = 0; i < granules_.count(); ++i) {
      found = first_[i] == 0 && may_take(granules_.at(i)) ? found + 1 : 0;
      const Address begin = granules_.at(i + 1 - found).begin;
      if (found == wanted) return {begin, begin + bytes};
    }
    return {};
  }
  void add(Range range) REQUIRES(mutex);
  void remove(Range range) REQUIRES(mutex);
  /// Makes two segments of one, at the begin of a granule. The first keeps the number.
  void cut(Range range, Address at) REQUIRES(mutex);
  /// The segment around the address, or null.
  Segment* around(Address address) REQUIRES(mutex);
  /// The segment with exactly this range, or null.
  Segment* find(Range range) REQUIRES(mutex);
  template <class Visit>
  void for_each(Visit&& visit) REQUIRES(mutex) {
    for (Segment& segment : segments_)
      if (!segment.range.empty()) visit(segment);
  }

  /// Keeps mappings from being laid over these granules. A mapping marks them before it looks at this; the
  /// owner looks for marks when it has begun. It begins under the mutex.
  class Changing {
   public:
    Changing(SegmentTable& table, Range range) : table_(table), range_(range) {
      table_.set_in_change(range_, true);
    }
    ~Changing() { table_.set_in_change(range_, false); }
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    SegmentTable& table_;
    const Range range_;
  };
  /// Whether another thread gives or takes memory of the range's granules. Lock-free; hooks call it.
  bool is_in_change(Range range) const;
  /// A forked child lacks the threads that changed granules.
  void end_changes();

  struct Figures {
    std::uint64_t segments = 0, most_segments = 0;
    std::uint64_t bytes = 0, most_bytes = 0;  ///< sizes of the segments
  };
  const Figures& figures() const REQUIRES(mutex) { return figures_; }

 private:
  void set_in_change(Range range, bool changes);

  const Granules& granules_;
  std::array<std::atomic<bool>, Granules::kMost> in_change_{};
  std::array<Segment, Granules::kMost> segments_ GUARDED_BY(mutex){};
  /// 1 + the granule at which its segment begins, by granule; 0: free.
  std::array<std::uint16_t, Granules::kMost> first_ GUARDED_BY(mutex){};
  std::uint64_t last_number_ GUARDED_BY(mutex) = 0;
  Figures figures_ GUARDED_BY(mutex);
};

}  // namespace pinion
