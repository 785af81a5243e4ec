// Init and Finalize, and what becomes of requests: Start, Wait, Test, Request_free.
#include "intercept/mpi/wrap.h"

using pinion::mpi::Completions;
using pinion::mpi::Requests;

// These are looked at whether or not an engine runs; of two nested calls (MPI_X from PMPI_X or the other way
// round) the session ignores the inner one.
#define PINION_MPI_LIFECYCLE_SYMBOL(symbol, parameters, arguments, before, after) \
  extern "C" PINION_EXPORT int symbol parameters {                                \
    static const auto next = ::pinion::next_symbol<int(*) parameters>(#symbol);   \
    before;                                                                       \
    const int result = next arguments;                                            \
    after;                                                                        \
    return result;                                                                \
  }
#define PINION_MPI_LIFECYCLE(name, parameters, arguments, before, after)        \
  PINION_MPI_LIFECYCLE_SYMBOL(MPI_##name, parameters, arguments, before, after) \
  PINION_MPI_LIFECYCLE_SYMBOL(PMPI_##name, parameters, arguments, before, after)

PINION_MPI_LIFECYCLE(Init, (int* argc, char*** argv), (argc, argv), ,
                     if (result == MPI_SUCCESS) pinion::mpi::begin_session())
PINION_MPI_LIFECYCLE(Init_thread, (int* argc, char*** argv, int required, int* provided),
                     (argc, argv, required, provided), ,
                     if (result == MPI_SUCCESS) pinion::mpi::begin_session())
PINION_MPI_LIFECYCLE(Finalize, (void), (), pinion::mpi::end_session(), )

// ---- starting persistent requests ----

namespace {

void start_transfer(pinion::mpi::CallScope& scope, const pinion::EntryFrame& entry, MPI_Request request) {
  Requests::Persistent persistent;
  if (!Requests::instance().find(request, persistent)) return;
  pinion::mpi::Buffers use(scope, entry, persistent.kind, persistent.peer);
  use.uses(persistent.range, persistent.access);
  use.hand_over_to(request);
}

}  // namespace

// Leases are taken before the call: once started, the operation may run. Should the call fail, they are
// returned when the request is completed or freed, or at the end of the run.
PINION_MPI_CALL(Start, (MPI_Request * request), (request), start_transfer(scope, entry, *request);
                return next(request);)
PINION_MPI_CALL(Startall, (int count, MPI_Request* requests), (count, requests),
                for (int i = 0; i < count; ++i) start_transfer(scope, entry, requests[i]);
                return next(count, requests);)

// ---- completion ----

// What is done after the call: `completed` where it succeeded, else only those requests that went are
// complete.
#define PINION_MPI_COMPLETION(name, parameters, arguments, requests, count, completed) \
  PINION_MPI_CALL(                                                                     \
      name, parameters, arguments, Completions done(scope, requests, count);           \
      const int result = next arguments;                                               \
      if (result == MPI_SUCCESS) { completed; } else { done.gone(); } return result;)

PINION_MPI_COMPLETION(Wait, (MPI_Request * request, MPI_Status* status), (request, status), request, 1,
                      done.all())
PINION_MPI_COMPLETION(Test, (MPI_Request * request, int* flag, MPI_Status* status), (request, flag, status),
                      request, 1, if (*flag) done.all())
PINION_MPI_COMPLETION(Waitall, (int count, MPI_Request* requests, MPI_Status* statuses),
                      (count, requests, statuses), requests, count, done.all())
PINION_MPI_COMPLETION(Testall, (int count, MPI_Request* requests, int* flag, MPI_Status* statuses),
                      (count, requests, flag, statuses), requests, count, if (*flag) done.all())
PINION_MPI_COMPLETION(Waitany, (int count, MPI_Request* requests, int* index, MPI_Status* status),
                      (count, requests, index, status), requests, count, done.finished(*index))
PINION_MPI_COMPLETION(Testany, (int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status),
                      (count, requests, index, flag, status), requests, count,
                      if (*flag) done.finished(*index))
PINION_MPI_COMPLETION(Waitsome,
                      (int count, MPI_Request* requests, int* done_count, int* indices, MPI_Status* statuses),
                      (count, requests, done_count, indices, statuses), requests, count,
                      done.some(*done_count, indices))
PINION_MPI_COMPLETION(Testsome,
                      (int count, MPI_Request* requests, int* done_count, int* indices, MPI_Status* statuses),
                      (count, requests, done_count, indices, statuses), requests, count,
                      done.some(*done_count, indices))
PINION_MPI_CALL(Request_free, (MPI_Request * request), (request), Requests::instance().freed(*request);
                return next(request);)
