// The MPI call that a thread is in, for registrations of libraries below it (--front verbs): its call site
// identifies the transfer better than the stack of the library's progress engine. Written and read by the
// owning thread.
#pragma once

#include "lease/lease.h"

namespace pinion::verbs {

/// `time` is not used; site 0: in no call that is known.
inline thread_local CallPoint t_mpi_call{};

}  // namespace pinion::verbs
