// The self-test of memory monitors: lets memory go in every way that libc has and checks that each event
// arrives. Owns the record in which they note every event.
#pragma once

#include <atomic>
#include <vector>

#include "base/range.h"
#include "monitor/libc_hooks.h"

namespace pinion {

/// Sees the last event that touches the watched range, on whichever thread.
class EventWatch {
 public:
  void start(Range range) {
    begun_.clear();
    ended_.clear();
    range_.set(range);
  }
  void stop() { range_.clear(); }
  void note_begin(Range r) {
    if (range_.get().overlaps(r)) begun_.set(r);
  }
  void note_end(Range r) {
    if (range_.get().overlaps(r)) ended_.set(r);
  }
  bool saw(Range r) const { return begun_.get() == r && ended_.get() == r; }
  bool is_open() const { return !begun_.get().empty() && !(begun_.get() == ended_.get()); }
  /// True if an event has begun and one has ended. One of several (a hook's, and the kernel's of the same
  /// call) may still be under way.
  bool saw_any() const { return !begun_.get().empty() && !ended_.get().empty(); }
  Range last() const { return ended_.get(); }

 private:
  /// Written by one thread at a time as the self-test is built; atomic so that a stray reader is harmless.
  struct SharedRange {
    std::atomic<Address> begin{0}, end{0};
    void set(Range r) {
      begin.store(r.begin);
      end.store(r.end);
    }
    void clear() { set({}); }
    Range get() const { return {begin.load(), end.load()}; }
  };
  SharedRange range_, begun_, ended_;
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
