// Written by hand: the calls on requests (Start, Wait, Test, Request_free), and matched probes.
#pragma once

#include "intercept/mpi/buffers.h"
#include "intercept/mpi/completions.h"
#include "intercept/mpi/entries.h"

namespace pinion::mpi::PINION_MPI_ABI {

// ---- starting persistent requests ----

// Leases are taken before the call: once started, the operation may run. Should the call fail, they are
// returned when the request is completed or freed, or at the end of the run.
inline void start(Buffers& use, int n, const Request* requests) {
  for (int i = 0; i < n; ++i) {
    const auto key = key_of(requests[i]);
    if (!Requests::may_know(key)) continue;
    if (const auto remembered = Requests::instance().find(key)) {
      use.repeat(*remembered);
      use.hand_over_to(requests[i]);
    }
  }
}

template <int entry>
int Start(Request* request) {
  const auto next = next_of<entry, int(Request*)>();
  if (!Completions::concern(request, 1)) [[likely]]
    return next(request);
  Buffers use(EntryFrame::here(), CallKind::none);
  if (use.watched()) start(use, 1, request);
  return next(request);
}

template <int entry>
int Startall(int n, Request* requests) {
  const auto next = next_of<entry, int(int, Request*)>();
  if (!Completions::concern(requests, n)) [[likely]]
    return next(n, requests);
  Buffers use(EntryFrame::here(), CallKind::none);
  if (use.watched()) start(use, n, requests);
  return next(n, requests);
}

// ---- completion ----

// Most requests belong to small messages, and are polled as fast as the processor can: those calls stay
// frameless.

[[gnu::noinline]] inline int complete_by_wait(int (*next)(Request*, Status*), Request* request,
                                              Status* status) {
  Completions done(request, 1, status);
  const int result = done.call([&] { return next(request, done.statuses()); });
  result == kSuccess ? done.all() : done.gone();
  return result;
}
template <int entry>
int Wait(Request* request, Status* status) {
  const auto next = next_of<entry, int(Request*, Status*)>();
  return Completions::concern(request, 1) ? complete_by_wait(next, request, status) : next(request, status);
}

[[gnu::noinline]] inline int complete_by_test(int (*next)(Request*, int*, Status*), Request* request,
                                              int* flag, Status* status) {
  Completions done(request, 1, status);
  const int result = done.call([&] { return next(request, flag, done.statuses()); });
  if (result != kSuccess) {
    done.gone();
  } else if (*flag) {
    done.all();
  }
  return result;
}
template <int entry>
int Test(Request* request, int* flag, Status* status) {
  const auto next = next_of<entry, int(Request*, int*, Status*)>();
  return Completions::concern(request, 1) ? complete_by_test(next, request, flag, status)
                                          : next(request, flag, status);
}

[[gnu::noinline]] inline int complete_by_waitall(int (*next)(int, Request*, Status*), int n,
                                                 Request* requests, Status* statuses) {
  Completions done(requests, n, statuses);
  const int result = done.call([&] { return next(n, requests, done.statuses()); });
  result == kSuccess ? done.all() : done.gone();
  return result;
}
template <int entry>
int Waitall(int n, Request* requests, Status* statuses) {
  const auto next = next_of<entry, int(int, Request*, Status*)>();
  return Completions::concern(requests, n) ? complete_by_waitall(next, n, requests, statuses)
                                           : next(n, requests, statuses);
}

[[gnu::noinline]] inline int complete_by_testall(int (*next)(int, Request*, int*, Status*), int n,
                                                 Request* requests, int* flag, Status* statuses) {
  Completions done(requests, n, statuses);
  const int result = done.call([&] { return next(n, requests, flag, done.statuses()); });
  if (result != kSuccess) {
    done.gone();
  } else if (*flag) {
    done.all();
  }
  return result;
}
template <int entry>
int Testall(int n, Request* requests, int* flag, Status* statuses) {
  const auto next = next_of<entry, int(int, Request*, int*, Status*)>();
  return Completions::concern(requests, n) ? complete_by_testall(next, n, requests, flag, statuses)
                                           : next(n, requests, flag, statuses);
}

[[gnu::noinline]] inline int complete_by_waitany(int (*next)(int, Request*, int*, Status*), int n,
                                                 Request* requests, int* index, Status* status) {
  Completions done(requests, n, status);
  const int result = done.call([&] { return next(n, requests, index, done.statuses()); });
  result == kSuccess ? done.finished(*index, 0) : done.gone();
  return result;
}
template <int entry>
int Waitany(int n, Request* requests, int* index, Status* status) {
  const auto next = next_of<entry, int(int, Request*, int*, Status*)>();
  return Completions::concern(requests, n) ? complete_by_waitany(next, n, requests, index, status)
                                           : next(n, requests, index, status);
}

[[gnu::noinline]] inline int complete_by_testany(int (*next)(int, Request*, int*, int*, Status*), int n,
                                                 Request* requests, int* index, int* flag, Status* status) {
  Completions done(requests, n, status);
  const int result = done.call([&] { return next(n, requests, index, flag, done.statuses()); });
  if (result != kSuccess) {
    done.gone();
  } else if (*flag) {
    done.finished(*index, 0);
  }
  return result;
}
template <int entry>
int Testany(int n, Request* requests, int* index, int* flag, Status* status) {
  const auto next = next_of<entry, int(int, Request*, int*, int*, Status*)>();
  return Completions::concern(requests, n) ? complete_by_testany(next, n, requests, index, flag, status)
                                           : next(n, requests, index, flag, status);
}

[[gnu::noinline]] inline int complete_by_waitsome(int (*next)(int, Request*, int*, int*, Status*), int n,
                                                  Request* requests, int* done_count, int* indices,
                                                  Status* statuses) {
  Completions done(requests, n, statuses);
  const int result = done.call([&] { return next(n, requests, done_count, indices, done.statuses()); });
  result == kSuccess ? done.some(*done_count, indices) : done.gone();
  return result;
}
template <int entry>
int Waitsome(int n, Request* requests, int* done_count, int* indices, Status* statuses) {
  const auto next = next_of<entry, int(int, Request*, int*, int*, Status*)>();
  return Completions::concern(requests, n)
             ? complete_by_waitsome(next, n, requests, done_count, indices, statuses)
             : next(n, requests, done_count, indices, statuses);
}

template <int entry>
int Testsome(int n, Request* requests, int* done_count, int* indices, Status* statuses) {
  return Waitsome<entry>(n, requests, done_count, indices, statuses);
}

// Buffers of requests that are freed under way stay leased (freed_requests.h).
template <int entry>
int Request_free(Request* request) {
  const auto next = next_of<entry, int(Request*)>();
  Nesting nesting;
  if (!request || !Requests::may_know(key_of(*request)) || !nesting.enter()) return next(request);
  FreedRequests::poll(nesting.thread(), nesting.lease_path());
  Operation active = Requests::instance().take_freed(key_of(*request));
  if (!active.empty())
    FreedRequests::instance().keep(nesting.thread(), nesting.lease_path(), std::move(active));
  return next(request);
}

// ---- matched probes: how long the message is ----

template <int entry>
int Mprobe(int source, int tag, Comm comm, Message* message, Status* status) {
  Status own;
  if (status == kStatusIgnore) status = &own;
  const int result =
      next_of<entry, int(int, int, Comm, Message*, Status*)>()(source, tag, comm, message, status);
  if (result == kSuccess) note_matched(*message, status->bytes());
  return result;
}

template <int entry>
int Improbe(int source, int tag, Comm comm, int* flag, Message* message, Status* status) {
  Status own;
  if (status == kStatusIgnore) status = &own;
  const int result = next_of<entry, int(int, int, Comm, int*, Message*, Status*)>()(source, tag, comm, flag,
                                                                                    message, status);
  if (result == kSuccess && *flag) note_matched(*message, status->bytes());
  return result;
}

}  // namespace pinion::mpi::PINION_MPI_ABI
