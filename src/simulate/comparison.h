// The measures that every strategy is compared with: the bytes that leave-pinned and an oracle would hold of
// a simulated process's memory, and what leave-pinned would have waited. Owns both unions; reports their
// changes to the observer. One thread.
#pragma once

#include "base/coverage.h"
#include "device/model/cost_model.h"
#include "retention/costs.h"
#include "retention/record.h"
#include "simulate/events.h"
#include "simulate/observer.h"
#include "simulate/oracle_bound.h"

namespace pinion::simulate {

class Comparison {
 public:
  /// All three outlive it.
  Comparison(const CostModel& nic, Events& events, Observer& observer)
      : nic_(nic), events_(events), observer_(observer), oracle_(nic) {}

  /// An acquire needs these whole pages. Returns what it means to leave-pinned.
  UnderLeavePinned asked(Range pages) {
    const std::size_t fresh = leave_pinned_.would_add(pages);
    if (fresh > 0) leave_pinned_.add(pages);
    if (fresh > 0) observer_.left_pinned(events_.now(), static_cast<std::int64_t>(fresh));
    return {.fresh_bytes = fresh, .all_bytes = leave_pinned_.bytes()};
  }
  /// Their lease begins, or ends. One that was shorter than the clock's tick still held its pages.
  void leased(Range pages) { oracle_.lease(events_.now(), pages, oracle_changed()); }
  void released(Range pages, Time leased) {
    oracle_.end(std::max(events_.now(), leased + 1), pages, oracle_changed());
  }
  void memory_changed(Range range) {
    const std::size_t gone = leave_pinned_.erase(range);
    if (gone) observer_.left_pinned(events_.now(), -static_cast<std::int64_t>(gone));
  }
  /// No further lease comes.
  void finish() { oracle_.report(kNever, oracle_changed()); }

  /// The part of a wait for these pages that leave-pinned would have waited too.
  Duration leave_pinned_part(const UnderLeavePinned& under, Range pages, Duration wait) const {
    const std::size_t fresh = under.fresh_bytes;
    return leave_pinned_wait(wait, nic_.register_cost(fresh / page_size()),
                             static_cast<double>(fresh) / static_cast<double>(pages.bytes()));
  }
  /// Registered if nothing were let go.
  std::size_t left_pinned_bytes() const { return leave_pinned_.bytes(); }

 private:
  struct OracleChanged {
    Observer& observer;
    void operator()(Time time, std::int64_t bytes) const { observer.oracle_held(time, bytes); }
  };
  OracleChanged oracle_changed() { return {observer_}; }

  const CostModel& nic_;
  Events& events_;
  Observer& observer_;
  Coverage leave_pinned_;
  OracleBound oracle_;
};

}  // namespace pinion::simulate
