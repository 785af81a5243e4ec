// Written by hand: calls that make or free the handles of known_handles.h. Other handles are learnt at the
// first call that succeeds with them.
#pragma once

#include "intercept/mpi/entries.h"
#include "intercept/mpi/freed_requests.h"
#include "intercept/mpi/known_handles.h"
#include "intercept/mpi/layouts.h"
#include "intercept/mpi/library.h"
#include "intercept/mpi/nesting.h"

namespace pinion::mpi::PINION_MPI_ABI {

template <int entry>
int Type_commit(Datatype* type) {
  const int result = next_of<entry, int(Datatype*)>()(type);
  if (result == kSuccess) {
    forget_runs(*type);  // of an earlier type with this handle, which a library may have freed by itself
    KnownHandles::datatypes().add(key_of(*type));
  }
  return result;
}

template <int entry>
int Type_free(Datatype* type) {
  if (type) {
    KnownHandles::datatypes().remove(key_of(*type));
    forget_runs(*type);
  }
  return next_of<entry, int(Datatype*)>()(type);
}

template <int entry>
int Comm_free(Comm* comm) {
  if (comm) KnownHandles::communicators().remove(key_of(*comm));
  return next_of<entry, int(Comm*)>()(comm);
}

/// Waits until all is quiet in the communicator: requests in it that were freed under way are complete
/// afterwards.
template <int entry>
int Comm_disconnect(Comm* comm) {
  if (comm) KnownHandles::communicators().remove(key_of(*comm));
  const int result = next_of<entry, int(Comm*)>()(comm);
  Nesting nesting;
  if (result == kSuccess && nesting.enter())
    FreedRequests::instance().finish(nesting.thread(), nesting.lease_path());
  return result;
}

}  // namespace pinion::mpi::PINION_MPI_ABI
