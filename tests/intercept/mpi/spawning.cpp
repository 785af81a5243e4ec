// A program that starts others like itself (MPI_Comm_spawn) and talks to them over the intercommunicator. One
// rank or more, and as many children.
#include "check.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm parent, between;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) {
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, world_size(), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between,
                   MPI_ERRCODES_IGNORE);
  } else {
    between = parent;
  }
  const int me = world_rank();
  for (int round = 0; round < 10; ++round) {
    const auto out = message(60000, me, round);
    std::vector<int> in(out.size());
    MPI_Sendrecv(out.data(), 60000, MPI_INT, me, 1, in.data(), 60000, MPI_INT, me, 1, between,
                 MPI_STATUS_IGNORE);
    CHECK(holds(in, me, round));
  }
  MPI_Comm_disconnect(&between);
  if (parent == MPI_COMM_NULL) return finish();
  MPI_Finalize();
  return g_failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
