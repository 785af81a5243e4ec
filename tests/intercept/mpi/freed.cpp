// Requests freed while their operation is under way, in numbers, then memory that is used for something else:
// nothing stays leased. The communicator they ran in is disconnected afterwards. Two ranks.
#include "check.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank(), other = 1 - me;
  constexpr int kCount = 40009, kMessages = 20;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::vector<int>> out, in(kMessages, std::vector<int>(kCount));
    std::vector<MPI_Request> receives(kMessages);
    for (int i = 0; i < kMessages; ++i) {
      out.push_back(message(kCount, me, i));
      MPI_Request send;
      if (i % 2) {
        MPI_Isend(out.back().data(), kCount, MPI_INT, other, i, comm, &send);
      } else {
        MPI_Send_init(out.back().data(), kCount, MPI_INT, other, i, comm, &send);
        MPI_Start(&send);
      }
      MPI_Request_free(&send);
      CHECK(send == MPI_REQUEST_NULL);
    }
    for (int i = 0; i < kMessages; ++i)
      MPI_Irecv(in[static_cast<std::size_t>(i)].data(), kCount, MPI_INT, other, i, comm,
                &receives[static_cast<std::size_t>(i)]);
    MPI_Waitall(kMessages, receives.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < kMessages; ++i) CHECK(holds(in[static_cast<std::size_t>(i)], other, i));
    MPI_Barrier(comm);
  }
  // One that is cancelled, and one without a sender, freed too.
  std::vector<int> never(kCount);
  MPI_Request request;
  MPI_Irecv(never.data(), kCount, MPI_INT, other, 99, comm, &request);
  MPI_Cancel(&request);
  MPI_Status status;
  MPI_Wait(&request, &status);
  int cancelled = 0;
  MPI_Test_cancelled(&status, &cancelled);
  CHECK(cancelled);
  MPI_Comm_disconnect(&comm);
  return finish();
}
