// The shape of a wrapper. Each intercepted call is one entry: its name, parameters, arguments, and what is
// done around the next definition of it. Both names that a program may call are defined: MPI_X and PMPI_X.
#pragma once

#include "intercept/mpi/call_scope.h"
#include "intercept/mpi/completions.h"
#include "intercept/mpi/requests.h"
#include "intercept/mpi/session.h"

#define PINION_MPI_SYMBOL(symbol, parameters, arguments, ...)                   \
  extern "C" PINION_EXPORT int symbol parameters {                              \
    static const auto next = ::pinion::next_symbol<int(*) parameters>(#symbol); \
    ::pinion::mpi::CallScope scope;                                             \
    if (!scope.watched()) return next arguments;                                \
    const ::pinion::EntryFrame entry = ::pinion::EntryFrame::here();            \
    (void)entry;                                                                \
    __VA_ARGS__                                                                 \
  }

/// An intercepted call whose body is given; in it, `next arguments` makes the call.
#define PINION_MPI_CALL(name, parameters, arguments, ...)           \
  PINION_MPI_SYMBOL(MPI_##name, parameters, arguments, __VA_ARGS__) \
  PINION_MPI_SYMBOL(PMPI_##name, parameters, arguments, __VA_ARGS__)

/// A call whose buffers are leased until it returns. The last argument names them: use.reads(...),
/// use.writes(...).
#define PINION_MPI_BLOCKING(name, parameters, arguments, kind, peer, ...)                   \
  PINION_MPI_CALL(name, parameters, arguments,                                              \
                  ::pinion::mpi::Buffers use(scope, entry, ::pinion::CallKind::kind, peer); \
                  __VA_ARGS__; return next arguments;)

/// A call whose one buffer is leased until its request completes; the last parameter is `MPI_Request*
/// request`.
#define PINION_MPI_NONBLOCKING(name, parameters, arguments, kind, peer, ...)                                 \
  PINION_MPI_CALL(                                                                                           \
      name, parameters, arguments, ::pinion::mpi::Buffers use(scope, entry, ::pinion::CallKind::kind, peer); \
      __VA_ARGS__; const int result = next arguments; if (result == MPI_SUCCESS) use.hand_over_to(*request); \
      return result;)

/// A call that makes a persistent request for one buffer.
#define PINION_MPI_PERSISTENT(name, parameters, arguments, kind, peer, access)                      \
  PINION_MPI_CALL(                                                                                  \
      name, parameters, arguments, const int result = next arguments;                               \
      const ::pinion::Range range = ::pinion::mpi::Buffers::span(scope.engine(), buf, count, type); \
      if (result == MPI_SUCCESS && !range.empty() &&                                                \
          peer != MPI_PROC_NULL)::pinion::mpi::Requests::instance()                                 \
          .remember(*request, {range, ::pinion::Access::access, ::pinion::CallKind::kind, peer});   \
      return result;)
