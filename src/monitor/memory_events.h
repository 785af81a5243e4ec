// The process's memory events: the way from the monitor, which sees that memory changes, to the sinks, which
// do something about it.
//
//   munmap(...) of the program or of libc
//     replacement (libc_hooks)         or the kernel's event (userfault), or pinion_memory_begin()
//       begin(change)                  opens the bracket, asks each sink, makes the final answer
//         sink: changing(change)         dooms its registrations there
//       the system call                unless it is held back or refused
//       end(range)                     closes the bracket
//         sink: changed(range)
//
// Owns the one set of brackets with its sight (brackets.h), the sinks (memory_sink.h), the unmappings that
// are held back (held_back.h), and the monitor that is started. All of it lasts as long as the process; runs
// of the engine begin and end inside events. The room depends on sinks only by their interface.
//
// begin(), end(), appeared() and lose_sight() are for hooks: any thread, any signal handler; no lock, no
// allocation. All else is ordinary code of any thread; one mutex guards watch() and leave(), another
// carry_out(). A forked child begins without other threads' brackets and held-back unmappings; it keeps only
// a monitor that has to stay.
#pragma once

#include "monitor/brackets.h"
#include "monitor/memory_change.h"
#include "monitor/memory_sink.h"
#include "monitor/monitor.h"

namespace pinion::memory_events {

// ---- hooks ----

/// Begins a change. The answer is `proceed` or the change's alternative; for munmap it may be `refuse` too.
Answer begin(const MemoryChange& change);
/// Ends it, with the same range on the same thread, after every answer.
void end(Range range);
/// The kernel has mapped memory where there was none.
void appeared(const NewMapping& mapping);
/// Events may be missed from now on: every sink dooms all that it has registered.
void lose_sight();

const Brackets& brackets();

// ---- sinks ----

/// ENOSPC: there are too many.
Error add(MemorySink& sink);
/// Hooks may be inside the sink still, and for any length of time (memory_sink.h).
void remove(MemorySink& sink);

/// Unmaps held-back memory that no sink holds any more: each sink is asked again, as at the munmap. A sink
/// calls this when holders have let go, and after its removal. Returns how many unmappings are still held
/// back.
std::size_t carry_out();

// ---- the monitor ----

/// Starts the monitor, and lets its self-test prove that events arrive. Sight is regained where they do.
/// While other code is patching, that is left to regain_sight().
StartedMonitor watch(MonitorKind kind);
/// Stops the monitor, unless it has to stay.
void leave();
/// The monitor stays until the process ends: leave() passes it by.
void stay();
/// The monitor that is started; null: none.
MemoryMonitor* monitor();

/// Other libraries may take the monitor's hooks away at any time. Sight that was lost meanwhile is regained
/// here, if the hooks can be put back now; where other code is patching, a later call tries again. An error:
/// sight is lost until the next watch(), for a reason that lasts.
Error regain_sight(MemoryMonitor& monitor);

}  // namespace pinion::memory_events
