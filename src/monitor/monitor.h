// Memory monitors: how the process learns that memory changes, behind one interface, and the choice among
// them.
//
// A monitor calls the HookCallbacks of libc_hooks.h; memory_events.h starts the process's monitor and takes
// its events. There is one monitor of each kind in a process, and at most one is started. All of it is
// ordinary code, called by one thread at a time except watch(), which any thread may call.
//
//   libc         libc's functions redirected in memory (libc_hooks.h)
//   symbols      the same replacements, reached by a preloaded library's symbols: where patching code is
//                forbidden. libc's own calls bypass the symbols, so alone it keeps nothing
//   userfaultfd  the kernel's own events (userfault.h), for watched ranges
//   brackets     only those that the program makes by pinion_memory_begin and pinion_memory_end
// The first two can have userfaultfd beside them. `automatic` chooses among these, and adds userfaultfd to
// libc once code with system calls of its own is loaded (own_calls.h). A user that names a monitor vouches
// for its blind spots.
#pragma once

#include <vector>

#include "base/error.h"
#include "base/range.h"
#include "monitor/libc_hooks.h"
#include "monitor/monitor_options.h"

namespace pinion {

class MemoryMonitor {
 public:
  /// The name that the option `monitor` has for it.
  virtual const char* name() const = 0;
  /// The changes that it never sees, in a few words each.
  virtual std::vector<const char*> blind_spots() const = 0;

  /// A row for each thing that was put in place. The callbacks stay the same until stop().
  virtual HookReport start(const HookCallbacks& callbacks) = 0;
  virtual void stop() = 0;
  /// Lets memory go in every way that libc has, after start(), with a row for each. An event beyond the
  /// monitor's claim may be missed.
  virtual HookReport self_test() = 0;

  /// Whether all that start() put in place is there still.
  virtual bool intact() const { return true; }
  /// Whether other code may be about to overwrite it. Lock-free.
  virtual bool exposed() const { return false; }
  /// Whether enough is known of the program's code to repair(). Until then, each call reads on.
  virtual bool knows_code() { return true; }
  /// Puts it back in place. EAGAIN: other code is changing it now; a later call may succeed.
  virtual HookReport repair() { return complete_report(); }
  /// The choice of a monitor that chooses.
  virtual const MemoryMonitor& chosen() const { return *this; }

  /// Called before the pages are registered with a device. An error: their events will be missed.
  virtual Error watch(Range) { return {}; }

 protected:
  /// The report of a monitor that has nothing to put in place.
  static HookReport complete_report() { return {.complete = true, .error = {}, .rows = {}}; }
  /// Monitors are never destroyed: threads may ask them while the process ends.
  ~MemoryMonitor() = default;
};

/// The one of each kind.
MemoryMonitor& monitor_of(MonitorKind kind);
/// The automatic one leaves userfaultfd alone from now on. An error: another monitor sees the events already.
Error keep_to_libc();

struct StartedMonitor {
  MemoryMonitor* monitor = nullptr;
  Error missing;  ///< why not all events are seen
};

/// Starts the chosen monitor and tests it. `automatic` is libc. Where its test fails, or loaded code makes
/// system calls of its own, userfaultfd is added to it (or to the preloaded symbols) if that closes the gap.
/// Otherwise libc works alone, with the gap.
StartedMonitor start_monitor(MonitorKind kind, const HookCallbacks& callbacks);

}  // namespace pinion
