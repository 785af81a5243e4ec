// One call in all its forms: blocking, nonblocking, persistent; with counts as int, or with LARGE_COUNTS as
// MPI_Count. COLLECTIVE(Bcast, bcast, arguments...) is MPI_Bcast, MPI_Ibcast or MPI_Bcast_init by g_form, up
// to and including its completion.
#pragma once

#include "check.h"

#ifdef LARGE_COUNTS
#define MPI(name) MPI_##name##_c
using count_t = MPI_Count;
using offset_t = MPI_Aint;
#else
#define MPI(name) MPI_##name
using count_t = int;
using offset_t = int;
#endif

#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#define MPI_PERSISTENT(name) MPIX_##name##_init
#else
#define MPI_PERSISTENT(name) MPI(name##_init)
#endif

enum class Form { blocking, nonblocking, persistent };
constexpr Form kForms[] = {Form::blocking, Form::nonblocking, Form::persistent};
inline Form g_form = Form::blocking;

inline void run_persistent(MPI_Request request) {
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Request_free(&request);
}

#ifdef LARGE_COUNTS
#define MPI_NONBLOCKING(name) MPI_I##name##_c
#else
#define MPI_NONBLOCKING(name) MPI_I##name
#endif

#define COLLECTIVE(Name, name, ...)                                \
  do {                                                             \
    MPI_Request request_;                                          \
    if (g_form == Form::blocking) {                                \
      MPI(Name)(__VA_ARGS__);                                      \
    } else if (g_form == Form::nonblocking) {                      \
      MPI_NONBLOCKING(name)(__VA_ARGS__, &request_);               \
      MPI_Wait(&request_, MPI_STATUS_IGNORE);                      \
    } else {                                                       \
      MPI_PERSISTENT(Name)(__VA_ARGS__, MPI_INFO_NULL, &request_); \
      run_persistent(request_);                                    \
    }                                                              \
  } while (false)
