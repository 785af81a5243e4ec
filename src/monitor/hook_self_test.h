// The self-test of memory monitors: lets memory go in every way that libc has and checks that each event
// arrives. Owns the record in which they note every event.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <vector>

#include "base/range.h"
#include "monitor/libc_hooks.h"

namespace pinion {

/// Sees the events that touch the watched range, on whichever thread. Another thread of the program may get
/// the address as soon as the test has let it go, and add events of its own.
class EventWatch {
 public:
  void start(Range range) {
    begun_.clear();
    ended_.clear();
    range_.set(range);
  }
  void stop() { range_.set({}); }
  void note_begin(Range r) {
    if (range_.get().overlaps(r)) begun_.add(r);
  }
  void note_end(Range r) {
    if (range_.get().overlaps(r)) ended_.add(r);
  }
  bool saw(Range r) const { return begun_.has(r) && ended_.has(r); }
  bool is_open() const { return begun_.count() > ended_.count(); }
  /// True if an event has begun and one has ended. One of several (a hook's, and the kernel's of the same
  /// call) may still be under way.
  bool saw_any() const { return begun_.count() != 0 && ended_.count() != 0; }
  Range last() const { return ended_.last(); }

 private:
  /// A torn one equals no range that is looked for.
  struct SharedRange {
    std::atomic<Address> begin{0}, end{0};
    void set(Range r) {
      begin.store(r.begin);
      end.store(r.end);
    }
    Range get() const { return {begin.load(), end.load()}; }
  };
  /// The first and the latest.
  class Log {
   public:
    void clear() { count_.store(0); }
    void add(Range r) { ranges_[std::min(count_.fetch_add(1), kRanges - 1)].set(r); }
    std::size_t count() const { return count_.load(); }
    bool has(Range r) const {
      const std::size_t known = std::min(count(), kRanges);
      return std::any_of(ranges_.begin(), ranges_.begin() + known,
                         [r](const SharedRange& range) { return range.get() == r; });
    }
    Range last() const { return count() == 0 ? Range{} : ranges_[std::min(count(), kRanges) - 1].get(); }

   private:
    static constexpr std::size_t kRanges = 16;
    std::array<SharedRange, kRanges> ranges_{};
    std::atomic<std::size_t> count_{0};
  };
  SharedRange range_;
  Log begun_, ended_;
};

/// Every monitor notes its events here, with and without a watch: a few loads.
extern constinit EventWatch event_watch;

/// One row for each way memory goes. `watch` is called for the memory before, where the monitor needs it. The
/// callbacks see the events too. Ordinary code; allocates, starts a thread, and holds a lock of its own.
/// Never in a hook.
HookReport test_memory_events(Error (*watch)(Range) = nullptr);

/// Returns a report of the rows: complete, or the first failure.
HookReport summarize(std::vector<HookStatus> rows);

}  // namespace pinion
