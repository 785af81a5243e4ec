// The large objects of a run: the board of memory events, the meter, the domains. Hooks may be inside them
// when the run ends, so they are never freed. The next run of the process takes them, once all leases of this
// run have ended.
//
// take() and give() may be called by any thread; a short mutex guards the list of spare ones. Each object
// states its own guards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "device/borrowed.h"
#include "lease/meter.h"
#include "lease/thread_context.h"
#include "monitor/event_board.h"
#include "registry/domain.h"
#include "retention/desk.h"
#include "runlog/format.h"

namespace pinion {

/// A domain with all that belongs to it: its device, its cache, the share of the figures that is its own, and
/// the objects by which the helper decides about it.
struct DomainSlot {
  DomainSlot(int of, Meter& process) : number(of), meter(process) {}

  const int number;
  std::string device_name, nic;      ///< by which it was opened; guarded by the table's mutex, as `open`
  bool open = true;                  ///< false: closed, until it is opened again with the same device
  DomainMeter meter;                 ///< as meter.h states
  ThreadCounters by_helper;          ///< written by the helper
  double modelled_busy_seconds = 0;  ///< of the device, when it is gone
  std::unique_ptr<Device> device;    ///< null only after the run
  /// The device, where the domain was opened by borrow(); guarded as `open`.
  BorrowedDevice* borrowed = nullptr;
  std::unique_ptr<Domain> domain;  ///< as registry/domain.h states
  KeptDomain kept;                 ///< as retention/desk.h states
};

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
