// The pages that an oracle would hold: the union of the pages under lease, the new ones of each lease
// registered just in time before it (the definition of runlog/analysis.h, while the run goes on). One thread.
#pragma once

#include <algorithm>
#include <queue>
#include <vector>

#include "base/clock.h"
#include "base/range.h"
#include "device/model/cost_model.h"

namespace pinion::simulate {

/// The union of few ranges, each of which may be there more than once.
class FewRanges {
 public:
  /// Returns the bytes by which the union grew, or shrank.
  std::size_t add(Range range) {
    const std::size_t fresh = uncovered(range);
    ranges_.push_back(range);
    return fresh;
  }
  std::size_t remove(Range range) {
    *std::find(ranges_.begin(), ranges_.end(), range) = ranges_.back();
    ranges_.pop_back();
    return uncovered(range);
  }

 private:
  std::size_t uncovered(Range range) {
    overlaps_.clear();
    for (const Range& other : ranges_) {
      if (other.contains(range)) return 0;
      if (other.overlaps(range)) overlaps_.push_back(other);
    }
    std::sort(overlaps_.begin(), overlaps_.end(), [](Range a, Range b) { return a.begin < b.begin; });
    std::size_t sum = 0;
    for (const Range& other : overlaps_) {
      if (other.begin > range.begin) sum += other.begin - range.begin;
      range.begin = std::max(range.begin, other.end);
    }
    return range.empty() ? sum : sum + range.bytes();
  }

  std::vector<Range> ranges_, overlaps_;
};

class OracleBound {
 public:
  explicit OracleBound(const CostModel& nic) : nic_(nic) {}

  /// A lease of whole pages begins, or ends, at `now`. `changed(time, bytes)` receives the changes that are
  /// certain by then, in order of time: an oracle registers earlier than the lease that shows it.
  template <class F>
  void lease(Time now, Range pages, F&& changed) {
    const std::size_t fresh = leased_.add(pages);
    const Duration ahead = fresh ? nic_.register_cost(fresh / page_size()) : 0;
    lag_ = std::max(lag_, 2 * ahead);
    moves_.push({now - ahead, true, pages});
    report(now - lag_, changed);
  }
  template <class F>
  void end(Time now, Range pages, F&& changed) {
    leased_.remove(pages);
    moves_.push({now, false, pages});
    report(now - lag_, changed);
  }
  /// No lease begins before `time` any more.
  template <class F>
  void report(Time time, F&& changed) {
    while (!moves_.empty() && moves_.top().time <= time) {
      const Move move = moves_.top();
      moves_.pop();
      const std::size_t bytes = move.begins ? held_.add(move.pages) : held_.remove(move.pages);
      last_ = std::max(last_, move.time);
      if (bytes)
        changed(last_, move.begins ? static_cast<std::int64_t>(bytes) : -static_cast<std::int64_t>(bytes));
    }
  }

 private:
  struct Move {
    Time time;
    bool begins;
    Range pages;
    /// Ends at an instant go before begins.
    bool operator>(const Move& other) const {
      return time != other.time ? time > other.time : begins > other.begins;
    }
  };

  const CostModel& nic_;
  FewRanges leased_, held_;
  std::priority_queue<Move, std::vector<Move>, std::greater<>> moves_;
  Duration lag_ = 0;
  Time last_ = 0;
};

}  // namespace pinion::simulate
