// The engine as the verbs front uses it: it starts at the first registration that Pinion may answer, which
// may be before main, and stays to the process's end. A forked child is without.
//
// Any thread; not from hooks. The start takes a mutex; all else is a few loads.
#pragma once

#include "lease/lease.h"

namespace pinion::verbs {

/// The lease path of the engine that runs for the front, started if need be; null: there is none, or no more.
LeasePath* running_leases();

/// Returns the lease path only if it runs already.
LeasePath* leases_that_run();

/// The lease path that was started; null: none. Its run may be over.
LeasePath* started_leases();

/// True in a child: handles and registrations are its parent's.
bool is_in_child();

}  // namespace pinion::verbs
