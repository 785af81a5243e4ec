// Memory events for libfabric: its own registration cache asks a memory monitor before each hit, and lets one
// be imported (fi_ext.h). This is ours, so that a program whose transfers go through libfabric's cache has
// the events that Pinion sees, and no second set of hooks over libc.
//
// How libfabric (1.14 and later) uses a monitor, and what follows for this one:
//   - Import is possible once a process, before the first domain with a cache is opened; it replaces what
//     libfabric would have taken by itself. There is no way back while caches exist: the monitor stays.
//   - subscribe, unsubscribe and valid are called with libfabric's one mutex of all caches held, under which
//     it also allocates; notify takes that same mutex. So notify must never be called from a hook: the thread
//     that allocates inside libfabric would wait for itself (other monitors have this deadlock). Hooks write
//     events down without a lock (monitor/subscriptions.h), and safety rests on valid(), which libfabric asks
//     before it uses a cached registration.
//   - Yet what nobody asks for again would stay pinned, so a thread of its own calls notify soon after an
//     event of interest. (libfabric then unpins at its next registration or close.)
//   - It needs no run of the engine, only the hooks, which stay in place once it was imported.
//
// import() is ordinary code, any thread. on_memory_change() is for hooks. libfabric calls the rest. libfabric
// is found when asked for, never linked; where Pinion was built without its headers, import() says so.
#pragma once

#include "base/error.h"
#include "base/range.h"

namespace pinion::fabric_monitor {

/// Makes Pinion the memory monitor of libfabric's registration cache. `function`: any of that libfabric's,
/// when the caller knows one; null: the libfabric that the process has loaded. Done already: no error.
///   ENOENT     no libfabric is loaded
///   ENOSYS     it cannot import monitors (before 1.14), or Pinion was built without its headers
///   ECANCELED  the user has chosen a monitor (FI_MR_CACHE_MONITOR), or has switched this off
///   EBUSY      another library has imported a monitor, or a cache is in use already
///   ENOTSUP    not all memory events can be seen in this process
///   EINVAL     the options in the environment are wrong
Error import(const void* function);

/// Whether the hooks have to stay.
bool imported();

/// Hooks: memory is about to change, within its bracket.
void on_memory_change(Range range);

/// In the child of a fork.
void abandon_after_fork();

}  // namespace pinion::fabric_monitor
