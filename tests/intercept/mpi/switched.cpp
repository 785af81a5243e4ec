// MPI_Pcontrol: recording off and on. Of 10 exchanges of two buffers 4 are recorded, and one receive that
// began before recording went off and ends while it is: 9 transfers a rank. Two ranks.
#include "check.h"

namespace {

void exchange() {
  const int me = world_rank(), other = 1 - me;
  const auto out = message(50000, me, 1);
  std::vector<int> in(out.size());
  MPI_Sendrecv(out.data(), 50000, MPI_INT, other, 1, in.data(), 50000, MPI_INT, other, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  CHECK(holds(in, other, 1));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank(), other = 1 - me;
  exchange();
  exchange();
  std::vector<int> in(50000);
  MPI_Request pending;
  MPI_Irecv(in.data(), 50000, MPI_INT, other, 7, MPI_COMM_WORLD, &pending);
  MPI_Pcontrol(0);
  for (int i = 0; i < 6; ++i) exchange();
  const auto out = message(50000, me, 7);
  MPI_Send(out.data(), 50000, MPI_INT, other, 7, MPI_COMM_WORLD);
  MPI_Wait(&pending, MPI_STATUS_IGNORE);
  CHECK(holds(in, other, 7));
  MPI_Pcontrol(2, "flush", 1.5);
  MPI_Pcontrol(1);
  exchange();
  exchange();
  return finish();
}
