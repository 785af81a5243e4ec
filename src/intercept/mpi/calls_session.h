// Written by hand: where MPI begins and ends. Of nested calls (MPI_X from PMPI_X or the other way round) the
// inner ones go through.
#pragma once

#include "intercept/caches_off.h"
#include "intercept/mpi/entries.h"
#include "intercept/mpi/groups.h"
#include "intercept/mpi/session.h"
#include "monitor/open_frame.h"

namespace pinion::mpi::PINION_MPI_ABI {

/// The outermost such call that the thread is in; the engine, which could answer, runs later.
inline constinit thread_local const void* t_lifecycle_call = nullptr;

template <class Call>
int outermost(Call call, void (*before)(), void (*after)()) {
  OpenFrame frame;
  if (frame.open(t_lifecycle_call) == OpenFrame::Opened::inside) return call();
  before();
  const int result = call();
  if (result == kSuccess) after();
  return result;
}

inline void nothing() {}

/// Runs an initialization in the same way.
template <class Call>
int begins(Call call, void (*after)()) {
  return outermost(
      [&] {
        const CachesOffInMpi off;
        return call();
      },
      nothing, after);
}

inline void world_begins() {
  Comm parent = library().comm_null;
  if (library().comm_get_parent) library().comm_get_parent(&parent);
  begin_session(parent != library().comm_null);
  if (intranode_is_off()) find_node();
}

inline void session_begins() { begin_session(false); }

inline void world_ends() {
  forget_node();
  end_session();
}

template <int entry>
int Init(int* argc, char*** argv) {
  const auto next = next_of<entry, int(int*, char***)>();
  return begins([&] { return next(argc, argv); }, world_begins);
}

template <int entry>
int Init_thread(int* argc, char*** argv, int required, int* provided) {
  const auto next = next_of<entry, int(int*, char***, int, int*)>();
  return begins([&] { return next(argc, argv, required, provided); }, world_begins);
}

template <int entry>
int Finalize() {
  return outermost([] { return next_of<entry, int()>()(); }, world_ends, nothing);
}

template <int entry>
int Session_init(Info info, Errhandler errors, Session* session) {
  const auto next = next_of<entry, int(Info, Errhandler, Session*)>();
  return begins([&] { return next(info, errors, session); }, session_begins);
}

template <int entry>
int Session_finalize(Session* session) {
  const auto next = next_of<entry, int(Session*)>();
  return outermost([&] { return next(session); }, end_session, nothing);
}

/// 0 switches recording off, 1 on. Others do nothing: 2 means flush, and the log is always complete
/// as it stands; the standard leaves the rest to each tool. Tools below get the arguments that are integers
/// or pointers.
template <int entry>
int Pcontrol(int level, long a, long b, long c, long d, long e) {
  if (level == 0 || level == 1) switch_recording(level == 1);
  return next_of<entry, int(int, ...)>()(level, a, b, c, d, e);
}

}  // namespace pinion::mpi::PINION_MPI_ABI
