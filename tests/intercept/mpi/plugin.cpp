// A plugin that brings MPI with it, and its host. The host has no MPI and loads the plugin with RTLD_LOCAL,
// as interpreters do. Two ranks.
#ifdef PLUGIN_HOST
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (!plugin) {
    std::printf("%s\n", argc > 1 ? dlerror() : "no plugin named");
    return 2;
  }
  const int status = reinterpret_cast<int (*)()>(dlsym(plugin, "run"))();
  dlclose(plugin);
  return status;
}
#else
#include "check.h"

extern "C" int run() {
  MPI_Init(nullptr, nullptr);
  const int me = world_rank(), other = 1 - me;
  const auto out = message(100000, me, 1);
  std::vector<int> in(out.size());
  for (int round = 0; round < 10; ++round) {
    MPI_Sendrecv(out.data(), 100000, MPI_INT, other, 0, in.data(), 100000, MPI_INT, other, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 1));
  }
  return finish();
}
#endif
