// Preloaded into an MPI program ahead of Pinion: the seconds of rank 0 in MPI calls, Pinion's part in them
// included, and those outside of them, from the end of MPI_Init to MPI_Finalize. mpiP does the same, by which
// the placement paper has its Figure 6. Prints `communication_s` and `computation_s`. `pinion bench
// placement` preloads it. Programs in C and C++; calls of one thread at a time.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdio>

namespace {

double g_begin = 0, g_communication = 0;

class Timed {
 public:
  ~Timed() { g_communication += PMPI_Wtime() - begin_; }

 private:
  double begin_ = PMPI_Wtime();
};

template <class Function>
Function* next(Function*, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): lists of parameters and arguments.
#define TIMED(name, parameters, ...)                   \
  extern "C" int name parameters {                     \
    static auto* const called = next(&P##name, #name); \
    const Timed timed;                                 \
    return called(__VA_ARGS__);                        \
  }
// NOLINTEND(bugprone-macro-parentheses)

TIMED(MPI_Send, (const void* b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c), b, n, t, p, tag, c)
TIMED(MPI_Isend, (const void* b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c, MPI_Request* r), b, n, t,
      p, tag, c, r)
TIMED(MPI_Recv, (void* b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c, MPI_Status* s), b, n, t, p, tag,
      c, s)
TIMED(MPI_Irecv, (void* b, int n, MPI_Datatype t, int p, int tag, MPI_Comm c, MPI_Request* r), b, n, t, p,
      tag, c, r)
TIMED(MPI_Sendrecv,
      (const void* b, int n, MPI_Datatype t, int p, int tag, void* b2, int n2, MPI_Datatype t2, int p2,
       int tag2, MPI_Comm c, MPI_Status* s),
      b, n, t, p, tag, b2, n2, t2, p2, tag2, c, s)
TIMED(MPI_Wait, (MPI_Request * r, MPI_Status* s), r, s)
TIMED(MPI_Waitall, (int n, MPI_Request r[], MPI_Status s[]), n, r, s)
TIMED(MPI_Waitany, (int n, MPI_Request r[], int* i, MPI_Status* s), n, r, i, s)
TIMED(MPI_Test, (MPI_Request * r, int* flag, MPI_Status* s), r, flag, s)
TIMED(MPI_Iprobe, (int p, int tag, MPI_Comm c, int* flag, MPI_Status* s), p, tag, c, flag, s)
TIMED(MPI_Probe, (int p, int tag, MPI_Comm c, MPI_Status* s), p, tag, c, s)
TIMED(MPI_Barrier, (MPI_Comm c), c)
TIMED(MPI_Bcast, (void* b, int n, MPI_Datatype t, int p, MPI_Comm c), b, n, t, p, c)
TIMED(MPI_Reduce, (const void* b, void* b2, int n, MPI_Datatype t, MPI_Op o, int p, MPI_Comm c), b, b2, n, t,
      o, p, c)
TIMED(MPI_Allreduce, (const void* b, void* b2, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), b, b2, n, t, o,
      c)
TIMED(MPI_Gather,
      (const void* b, int n, MPI_Datatype t, void* b2, int n2, MPI_Datatype t2, int p, MPI_Comm c), b, n, t,
      b2, n2, t2, p, c)
TIMED(MPI_Scatter,
      (const void* b, int n, MPI_Datatype t, void* b2, int n2, MPI_Datatype t2, int p, MPI_Comm c), b, n, t,
      b2, n2, t2, p, c)
TIMED(MPI_Allgather, (const void* b, int n, MPI_Datatype t, void* b2, int n2, MPI_Datatype t2, MPI_Comm c), b,
      n, t, b2, n2, t2, c)
TIMED(MPI_Allgatherv,
      (const void* b, int n, MPI_Datatype t, void* b2, const int n2[], const int d[], MPI_Datatype t2,
       MPI_Comm c),
      b, n, t, b2, n2, d, t2, c)
TIMED(MPI_Alltoall, (const void* b, int n, MPI_Datatype t, void* b2, int n2, MPI_Datatype t2, MPI_Comm c), b,
      n, t, b2, n2, t2, c)
TIMED(MPI_Alltoallv,
      (const void* b, const int n[], const int d[], MPI_Datatype t, void* b2, const int n2[], const int d2[],
       MPI_Datatype t2, MPI_Comm c),
      b, n, d, t, b2, n2, d2, t2, c)

extern "C" int MPI_Init(int* argc, char*** argv) {
  const int result = next(&PMPI_Init, "MPI_Init")(argc, argv);
  g_begin = PMPI_Wtime();
  return result;
}

extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int result = next(&PMPI_Init_thread, "MPI_Init_thread")(argc, argv, required, provided);
  g_begin = PMPI_Wtime();
  return result;
}

extern "C" int MPI_Finalize() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    std::printf("\ncommunication_s %.6f\ncomputation_s %.6f\n", g_communication,
                PMPI_Wtime() - g_begin - g_communication);
  return next(&PMPI_Finalize, "MPI_Finalize")();
}
