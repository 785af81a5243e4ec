// Whether a registration was asked for by a library that has a registration cache of its own (UCX, libfabric,
// Open MPI): keys that it has given to peers outlive its deregistration with its own cache, too. Owns a table
// of answers by return address, which holds until code is unmapped. Any thread; takes only the dynamic
// linker's lock, the first time.
#pragma once

#include "base/range.h"

namespace pinion::verbs {

bool caches_itself(Address return_address);

/// Looks it up anew at each call.
bool is_ucx(Address return_address);

}  // namespace pinion::verbs
