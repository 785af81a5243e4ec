// The large objects of a run: the board of memory events, the meter, the domains. Hooks may be inside them
// when the run ends, so they are never freed. The next run of the process takes them, once all leases of this
// run have ended.
//
// take() and give() may be called by any thread; a short mutex guards the list of spare ones. Each object
// states its own guards.
#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "lease/domain_slot.h"
#include "lease/meter.h"
#include "monitor/event_board.h"
#include "runlog/format.h"

namespace pinion {

struct RunMemory {
  EventBoard events;
  Meter meter;
  Mutex told_mutex;
  runlog::Counters told GUARDED_BY(told_mutex){};  ///< the helper's share of the counters
  runlog::Lateness lateness{};                     ///< the helper's own
  std::vector<std::unique_ptr<DomainSlot>> slots;  ///< guarded by the mutex of the run's DomainTable
  std::size_t slots_used = 0;                      ///< in this run; guarded likewise
  RunMemory* next_spare = nullptr;

  /// A spare one, as good as new, or a new one.
  static RunMemory& take();
  /// Gives the memory to the next run: all domains are empty.
  static void give(RunMemory& memory);
  /// Leaves the parent's spare memory alone, in a forked child.
  static void abandon_after_fork();
};

}  // namespace pinion
