// The memory of this process that its peers may reach: the segments that the program named, or everything. A
// constant; callable from anywhere.
#pragma once

#include <algorithm>
#include <vector>

#include "base/range.h"
#include "pinion/firehose.h"

namespace pinion::firehose {

class Exposure {
 public:
  explicit Exposure(const pinion_firehose_options& options) {
    for (std::size_t i = 0; i < options.segment_count; ++i)
      segments_.push_back(Range::of(options.segments[i].address, options.segments[i].bytes));
  }

  bool contains(Range range) const {
    return segments_.empty() || std::any_of(segments_.begin(), segments_.end(),
                                            [&](const Range& segment) { return segment.contains(range); });
  }
  /// The largest exposed part of a range, in whole pages; empty: nothing of it is exposed.
  Range part_of(Range range) const {
    if (segments_.empty()) return range;
    Range largest{};
    for (const Range& segment : segments_) {
      const Range part{std::max(range.begin, page_ceil(segment.begin)),
                       std::min(range.end, page_floor(segment.end))};
      if (!part.empty() && part.bytes() > largest.bytes()) largest = part;
    }
    return largest;
  }

 private:
  std::vector<Range> segments_;  ///< empty: everything
};

}  // namespace pinion::firehose
