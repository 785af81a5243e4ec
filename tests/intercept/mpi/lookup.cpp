// A program without MPI among its own or its libraries' dependencies: it loads the library named by
// its first argument for itself alone and looks the functions up in it, as Julia does. Two ranks; 20
// exchanges of two buffers.
#include <dlfcn.h>

#include "check.h"

namespace {

void* library;

template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

#ifdef OPEN_MPI
MPI_Comm world() { return static_cast<MPI_Comm>(dlsym(library, "ompi_mpi_comm_world")); }
MPI_Datatype integers() { return static_cast<MPI_Datatype>(dlsym(library, "ompi_mpi_int")); }
#else
MPI_Comm world() { return MPI_COMM_WORLD; }
MPI_Datatype integers() { return MPI_INT; }
#endif

}  // namespace

int main(int argc, char** argv) {
  library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!library) {
    std::printf("%s\n", argc > 1 ? dlerror() : "no library named");
    return 2;
  }
  if (dlsym(library, "MPI_No_such_function") || !dlerror()) return 3;
  function<decltype(MPI_Init)>("MPI_Init")(nullptr, nullptr);
  const auto exchange = function<decltype(MPI_Sendrecv)>("MPI_Sendrecv");
  int me = -1;
  function<decltype(MPI_Comm_rank)>("MPI_Comm_rank")(world(), &me);
  const int other = 1 - me;
  const auto out = message(100000, me, 1);
  std::vector<int> in(out.size());
  bool good = true;
  for (int round = 0; round < 20; ++round) {
    exchange(out.data(), 100000, integers(), other, 0, in.data(), 100000, integers(), other, 0, world(),
             MPI_STATUS_IGNORE);
    good = good && holds(in, other, 1);
  }
  if (me == 0) std::printf(good ? "verified\n" : "FAILED\n");
  function<decltype(MPI_Finalize)>("MPI_Finalize")();
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
