// Partitioned operations: a message that becomes ready piece by piece. Two ranks; MPI 4.
#include "check.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank(), other = 1 - me;
  constexpr int kPieces = 8, kCount = 5003;
  constexpr std::size_t kAll = std::size_t{kPieces} * kCount;
  std::vector<int> data(kAll);
  MPI_Request request;
  if (me == 0) {
    MPI_Psend_init(data.data(), kPieces, kCount, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  } else {
    MPI_Precv_init(data.data(), kPieces, kCount, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
  }
  for (int round = 0; round < 10; ++round) {
    if (me == 0) {
      fill(data.data(), kAll, me, round);
    } else {
      data.assign(kAll, 0);
    }
    MPI_Start(&request);
    for (int i = 0; me == 0 && i < kPieces; ++i) MPI_Pready(kPieces - 1 - i, request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(holds(data, 0, round));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Request_free(&request);
  return finish();
}
