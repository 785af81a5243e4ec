// Receives posted for 4 MB that always get 40 KB, in every way to receive; then one that gets all of it. Two
// ranks, of which rank 1 receives.
#include "check.h"

namespace {

constexpr int kPosted = 1 << 20, kSent = 10000, kRounds = 12;
const MPI_Comm kWorld = MPI_COMM_WORLD;

/// `count` ints arrive, each in memory of its own.
void receive(int how, int count, int what) {
  std::vector<int> in(kPosted, -1);
  MPI_Request request;
  MPI_Message message_found;
  switch (how) {
    case 0:
      MPI_Recv(in.data(), kPosted, MPI_INT, 0, 1, kWorld, MPI_STATUS_IGNORE);
      break;
    case 1:
      MPI_Irecv(in.data(), kPosted, MPI_INT, 0, 1, kWorld, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      break;
    case 2:
      MPI_Irecv(in.data(), kPosted, MPI_INT, MPI_ANY_SOURCE, 1, kWorld, &request);
      MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
      break;
    case 3:
      MPI_Recv_init(in.data(), kPosted, MPI_INT, 0, 1, kWorld, &request);
      MPI_Start(&request);
      for (int flag = 0; !flag;) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
      MPI_Request_free(&request);
      break;
    case 4:
      MPI_Mprobe(0, 1, kWorld, &message_found, MPI_STATUS_IGNORE);
      MPI_Mrecv(in.data(), kPosted, MPI_INT, &message_found, MPI_STATUS_IGNORE);
      break;
    default:
      break;
  }
  CHECK(holds(in.data(), static_cast<std::size_t>(count), 0, what));
  for (std::size_t i = static_cast<std::size_t>(count); i < in.size(); ++i) CHECK(in[i] == -1);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank();
  const auto all = message(kPosted, 0, 1);
  for (int how = 0; how < 5; ++how) {
    for (int round = 0; round < kRounds + 1; ++round) {
      const int count = round < kRounds ? kSent : kPosted;
      if (me == 0) MPI_Send(all.data(), count, MPI_INT, 1, 1, kWorld);
      if (me == 1) receive(how, count, 1);
      MPI_Barrier(kWorld);
    }
  }
  return finish();
}
