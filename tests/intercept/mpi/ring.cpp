// Any number of ranks, each of which sends to the next one. ring [HOW], with HOW of: leave (without
// MPI_Finalize, in which some MPI libraries hang over TCP), forever (until it is killed; a line shows that it
// is well under way).
#include <cstdlib>
#include <cstring>

#include "check.h"

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  const int me = world_rank(), ranks = world_size(), next = (me + 1) % ranks,
            previous = (me + ranks - 1) % ranks;
  constexpr int kCount = 50000;
  std::vector<int> in(kCount);
  for (int round = 0; round < 20 || std::strcmp(how, "forever") == 0; ++round) {
    const auto out = message(kCount, me, round);
    MPI_Sendrecv(out.data(), kCount, MPI_INT, next, 1, in.data(), kCount, MPI_INT, previous, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(holds(in, previous, round));
    if (me == 0 && round == 20) std::puts("turning"), std::fflush(stdout);
  }
  if (std::strcmp(how, "leave") != 0) return finish();
  if (me == 0) std::printf(g_failures ? "FAILED\n" : "verified\n");
  std::fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  std::exit(g_failures ? 1 : 0);
}
