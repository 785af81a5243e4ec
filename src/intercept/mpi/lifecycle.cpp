// Init and Finalize, and what becomes of requests: Start, Wait, Test, Request_free.
#include "intercept/mpi/wrap.h"

using pinion::mpi::Completions;
using pinion::mpi::Requests;

// MPI_X and PMPI_X of these do the same; the session itself ignores the inner of two nested calls.
#define PINION_MPI_LIFECYCLE(name, parameters, arguments, before, after)              \
  extern "C" PINION_EXPORT int MPI_##name parameters {                                \
    static const auto next = ::pinion::next_symbol<int(*) parameters>("MPI_" #name);  \
    before;                                                                           \
    const int result = next arguments;                                                \
    after;                                                                            \
    return result;                                                                    \
  }                                                                                   \
  extern "C" PINION_EXPORT int PMPI_##name parameters {                               \
    static const auto next = ::pinion::next_symbol<int(*) parameters>("PMPI_" #name); \
    before;                                                                           \
    const int result = next arguments;                                                \
    after;                                                                            \
    return result;                                                                    \
  }

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

PINION_MPI_CALL(Wait, (MPI_Request * request, MPI_Status* status), (request, status),
                Completions done(scope, request, 1);
                const int result = next(request, status); done.all(result == MPI_SUCCESS); return result;)
PINION_MPI_CALL(Test, (MPI_Request * request, int* flag, MPI_Status* status), (request, flag, status),
                Completions done(scope, request, 1);
                const int result = next(request, flag, status); done.all(result == MPI_SUCCESS && *flag);
                return result;)
PINION_MPI_CALL(Waitall, (int count, MPI_Request* requests, MPI_Status* statuses),
                (count, requests, statuses), Completions done(scope, requests, count);
                const int result = next(count, requests, statuses); done.all(result == MPI_SUCCESS);
                return result;)
PINION_MPI_CALL(Testall, (int count, MPI_Request* requests, int* flag, MPI_Status* statuses),
                (count, requests, flag, statuses), Completions done(scope, requests, count);
                const int result = next(count, requests, flag, statuses);
                done.all(result == MPI_SUCCESS && *flag); return result;)
PINION_MPI_CALL(Waitany, (int count, MPI_Request* requests, int* index, MPI_Status* status),
                (count, requests, index, status), Completions done(scope, requests, count);
                const int result = next(count, requests, index, status);
                if (*index != MPI_UNDEFINED) done.finished(*index); return result;)
PINION_MPI_CALL(Testany, (int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status),
                (count, requests, index, flag, status), Completions done(scope, requests, count);
                const int result = next(count, requests, index, flag, status);
                if (*flag && *index != MPI_UNDEFINED) done.finished(*index); return result;)
PINION_MPI_CALL(Waitsome,
                (int count, MPI_Request* requests, int* done_count, int* indices, MPI_Status* statuses),
                (count, requests, done_count, indices, statuses), Completions done(scope, requests, count);
                const int result = next(count, requests, done_count, indices, statuses);
                done.some(*done_count, indices); return result;)
PINION_MPI_CALL(Testsome,
                (int count, MPI_Request* requests, int* done_count, int* indices, MPI_Status* statuses),
                (count, requests, done_count, indices, statuses), Completions done(scope, requests, count);
                const int result = next(count, requests, done_count, indices, statuses);
                done.some(*done_count, indices); return result;)
PINION_MPI_CALL(Request_free, (MPI_Request * request), (request), Requests::instance().freed(*request);
                return next(request);)
