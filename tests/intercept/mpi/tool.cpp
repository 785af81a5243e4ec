// A tool of the profiling interface such as users have: counts calls and bytes, and prints them at the end.
// Loaded above or below Pinion, both count right. Beneath Pinion it also shows the setting of a made-up cache
// that is to hold while MPI begins.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

static long g_sends = 0, g_receives = 0, g_waits = 0;
static std::string g_cache_at_start;

static std::string cache() {
  const char* const name = std::getenv("MADE_UP_NAME");
  const char* const set = name ? std::getenv(name) : nullptr;
  return set ? set : "unset";
}

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  g_cache_at_start = cache();
  return PMPI_Init(argc, argv);
}
int MPI_Send(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
  ++g_sends;
  return PMPI_Send(buf, count, type, dest, tag, comm);
}
int MPI_Isend(const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++g_sends;
  return PMPI_Isend(buf, count, type, dest, tag, comm, request);
}
int MPI_Recv(void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status* status) {
  ++g_receives;
  return PMPI_Recv(buf, count, type, source, tag, comm, status);
}
int MPI_Irecv(void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request* request) {
  ++g_receives;
  return PMPI_Irecv(buf, count, type, source, tag, comm, request);
}
int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  ++g_waits;
  return PMPI_Wait(request, status);
}
int MPI_Finalize() {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "tool: rank %d: %ld sends, %ld receives, %ld waits\n", rank, g_sends, g_receives,
               g_waits);
  if (std::getenv("PINION_CACHES_OFF"))
    std::fprintf(stderr, "tool: cache %s, then %s\n", g_cache_at_start.c_str(), cache().c_str());
  return PMPI_Finalize();
}
}
