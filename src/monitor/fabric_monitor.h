// Memory events for libfabric: its own registration cache queries a memory monitor before each hit, and can
// import one (fi_ext.h). This is ours. A program that transfers through libfabric's cache then has the events
// that Pinion sees, with one set of hooks over libc.
//
// How libfabric (1.14 and later) uses a monitor, and the consequences here:
//   - Import is possible once a process, before the first domain with a cache is opened; it replaces
//     libfabric's own choice. It is permanent while caches exist: the monitor stays.
//   - subscribe, unsubscribe and valid are called with libfabric's one mutex of all caches held, under which
//     it also allocates; notify takes that same mutex. So notify must never be called from a hook: the thread
//     that allocates inside libfabric would wait for itself (other monitors have this deadlock). Hooks write
//     events down without a lock (monitor/subscriptions.h), and safety rests on valid(), which libfabric
//     calls before it uses a cached registration.
//   - Yet an unused stale registration would stay pinned, so a thread of its own calls notify soon after an
//     event of interest. (libfabric then unpins at its next registration or close.)
//   - It needs only the hooks, which stay in place once it was imported; the engine may be stopped.
//
// It is a sink of memory_events.h from its import on. import() is ordinary code, any thread; libfabric calls
// the rest. libfabric is looked up at the import, never linked; where Pinion was built without its headers,
// import() returns that error.
#pragma once

#include "base/error.h"
#include "monitor/monitor_options.h"

namespace pinion::fabric_monitor {

/// The user's wishes.
struct Wishes {
  bool off = false;  ///< libfabric keeps its own monitor
  MonitorKind monitor = MonitorKind::automatic;
};

/// Makes Pinion the memory monitor of libfabric's registration cache. `function`: any of that libfabric's,
/// when the caller has one; null: the libfabric that the process has loaded. `read_wishes` is called unless
/// that is done already; its error is returned.
///   ENOENT     no libfabric is loaded
///   ENOSYS     it cannot import monitors (before 1.14), or Pinion was built without its headers
///   ECANCELED  the user has chosen a monitor (FI_MR_CACHE_MONITOR), or has switched this off
///   EBUSY      another library has imported a monitor, or a cache is in use already
///   ENOTSUP    not all memory events can be seen in this process
Error import(const void* function, Error (*read_wishes)(Wishes&));

}  // namespace pinion::fabric_monitor
