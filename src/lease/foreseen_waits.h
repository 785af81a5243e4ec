// The waits of leave-pinned for registrations whose first leases still last. A lease has its record when it
// ends, and those of libraries' pools end with the program; until then the time of the registration stands
// for its wait. Of one domain; the helper only.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "base/range.h"

namespace pinion {

class ForeseenWaits {
 public:
  void add(Range registered, Duration wait) {
    Foreseen& there = by_begin_[registered.begin];
    there.end = std::max(there.end, registered.end);
    there.wait += wait;
  }

  /// Removes and returns the wait for the registration that `pages` lie in: their lease has ended.
  Duration take(Range pages) {
    const auto after = by_begin_.upper_bound(pages.begin);
    if (after == by_begin_.begin()) return 0;
    const auto found = std::prev(after);
    return found->second.end > pages.begin ? remove(found) : 0;
  }

  /// Removes and returns the waits for all memory that `range` touches: it has gone.
  Duration erase(Range range) {
    Duration gone = 0;
    auto at = by_begin_.lower_bound(range.begin);
    if (at != by_begin_.begin() && std::prev(at)->second.end > range.begin) --at;
    while (at != by_begin_.end() && at->first < range.end) {
      const auto next = std::next(at);
      gone += remove(at);
      at = next;
    }
    return gone;
  }

 private:
  struct Foreseen {
    Address end = 0;
    Duration wait = 0;
  };
  using Waits = std::map<Address, Foreseen>;

  Duration remove(Waits::iterator at) {
    const Duration wait = at->second.wait;
    by_begin_.erase(at);
    return wait;
  }

  Waits by_begin_;
};

}  // namespace pinion
