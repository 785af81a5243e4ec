// A known number of transfers of 400 KB, and many small ones: the reference for Pinion's count of acquires. A
// rank makes 10 rounds of: Send or Recv; Isend or Irecv; Sendrecv (two buffers); one Start; Bcast;
// Alltoall (two buffers). That is 80.
#include "check.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank(), other = 1 - me;
  constexpr int kCount = 100000;
  const MPI_Comm world = MPI_COMM_WORLD;
  auto out = message(kCount, me, 1);
  std::vector<int> in(kCount);
  MPI_Request kept;
  if (me == 0) {
    MPI_Send_init(out.data(), kCount, MPI_INT, other, 3, world, &kept);
  } else {
    MPI_Recv_init(in.data(), kCount, MPI_INT, other, 3, world, &kept);
  }
  for (int round = 0; round < 10; ++round) {
    MPI_Request request;
    if (me == 0) {
      MPI_Send(out.data(), kCount, MPI_INT, other, 1, world);
      MPI_Isend(out.data(), kCount, MPI_INT, other, 2, world, &request);
    } else {
      MPI_Recv(in.data(), kCount, MPI_INT, other, 1, world, MPI_STATUS_IGNORE);
      MPI_Irecv(in.data(), kCount, MPI_INT, other, 2, world, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Sendrecv(out.data(), kCount, MPI_INT, other, 4, in.data(), kCount, MPI_INT, other, 4, world,
                 MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 1));
    MPI_Start(&kept);
    MPI_Wait(&kept, MPI_STATUS_IGNORE);
    MPI_Bcast(in.data(), kCount, MPI_INT, 0, world);
    MPI_Alltoall(out.data(), kCount / 2, MPI_INT, in.data(), kCount / 2, MPI_INT, world);
    for (int i = 0; i < 20; ++i) MPI_Bcast(in.data(), 100, MPI_INT, i % 2, world);
    fill(in.data(), kCount, me, 2);
  }
  MPI_Request_free(&kept);
  return finish();
}
