// Sees the dynamic linker load and unload libraries. It maps and unmaps them by system calls of its own, past
// libc's functions. But it announces each change to debuggers by an empty function (r_debug.r_brk, <link.h>),
// whichever call caused it: dlclose, a dlopen that fails, libc's own loading for iconv and name services.
// That function is redirected in memory, as libc's are.
//
// Owns the patch of that function, and a count of announcements. watch_loader, rewatch_loader, unwatch_loader
// and test_loader are ordinary code, guarded by one mutex. The callbacks run on the thread that loads or
// unloads, which holds the dynamic linker's lock: the law of HookCallbacks (libc_hooks.h) holds for them. All
// else may be called from anywhere.
//
// The order at an unloading: destructors, the announcement, the callback, the unmapping, the second
// announcement. At a loading: the mapping, the announcement, the callback, constructors. Libraries of other
// namespaces (dlmopen) are announced too, but their state is invisible: each announcement then counts as
// both.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "monitor/libc_hooks.h"

namespace pinion {

/// Redirects the announcement: memory of libraries that is about to go reaches HookCallbacks::exposed, and
/// then HookCallbacks::unloaded. The first callbacks stay until unwatch_loader(). An error: the reason why
/// libraries go unseen.
Error watch_loader(const HookCallbacks& sink);
/// Restores the patch of a watch that was started, where others have overwritten it.
Error rewatch_loader();
void unwatch_loader();

/// Whether announcements arrive, as far as the patch's bytes show.
bool loader_watched();
/// Calls the announcement function although libraries are unchanged, and checks that the call arrives.
Error test_loader();

/// Whether libraries are being unmapped now.
bool loader_unloading();
/// Grows with each announcement of new code, before it runs.
std::uint64_t loads_announced();
/// Whether new code reaches HookCallbacks::exposed too, before it runs: it may make system calls of its own.
void report_loads(bool on);
/// The address of the announcement; null where that is unknown.
const void* loader_code();

}  // namespace pinion
