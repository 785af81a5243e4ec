// Blocking point-to-point, in every mode: two ranks, sizes below and above any threshold.
#include "forms.h"

#ifdef LARGE_COUNTS
#define P_SEND PMPI_Send_c
#else
#define P_SEND PMPI_Send
#endif

namespace {

constexpr std::size_t kCounts[] = {1, 2, 500, 4096, 30001, 300000};
const MPI_Comm kWorld = MPI_COMM_WORLD;
int me, other;

using Send = int (*)(const void*, count_t, MPI_Datatype, int, int, MPI_Comm);

// Ready mode needs a receive that is posted already: the receiver says so.
void one_way(Send send, bool ready, int what) {
  for (const std::size_t count : kCounts) {
    const int n = static_cast<int>(count);
    if (me == 0) {
      const auto data = message(count, me, what);
      if (ready) MPI(Recv)(nullptr, 0, MPI_INT, other, 99, kWorld, MPI_STATUS_IGNORE);
      send(data.data(), n, MPI_INT, other, what, kWorld);
      CHECK(holds(data, me, what));
    } else {
      std::vector<int> data(count);
      MPI_Status status;
      if (ready) {
        MPI_Request request;
        MPI(Irecv)(data.data(), n, MPI_INT, MPI_ANY_SOURCE, what, kWorld, &request);
        MPI(Send)(nullptr, 0, MPI_INT, other, 99, kWorld);
        MPI_Wait(&request, &status);
      } else {
        MPI(Recv)(data.data(), n, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, kWorld, &status);
      }
      int received = 0;
      MPI_Get_count(&status, MPI_INT, &received);
      CHECK(received == n && status.MPI_SOURCE == other && status.MPI_TAG == what);
      CHECK(holds(data, other, what));
    }
  }
}

// A receive posted for more than the message leaves the rest alone.
void shorter_than_posted() {
  std::vector<int> data(50000, -1);
  if (me == 0) {
    fill(data.data(), 20000, me, 5);
    MPI(Send)(data.data(), 20000, MPI_INT, other, 5, kWorld);
  } else {
    MPI(Recv)(data.data(), 50000, MPI_INT, other, 5, kWorld, MPI_STATUS_IGNORE);
    CHECK(holds(data.data(), 20000, other, 5));
    for (std::size_t i = 20000; i < data.size(); ++i) CHECK(data[i] == -1);
  }
}

void matched() {
  for (const std::size_t count : kCounts) {
    const int n = static_cast<int>(count);
    if (me == 0) {
      const auto data = message(count, me, 6);
      MPI(Send)(data.data(), n, MPI_INT, other, 6, kWorld);
      MPI(Send)(data.data(), n, MPI_INT, other, 6, kWorld);
    } else {
      std::vector<int> data(count);
      MPI_Message found;
      MPI_Status status;
      MPI_Mprobe(other, 6, kWorld, &found, &status);
      MPI(Mrecv)(data.data(), n, MPI_INT, &found, &status);
      CHECK(found == MPI_MESSAGE_NULL && holds(data, other, 6));
      data.assign(count, 0);
      MPI_Request request;
      MPI_Mprobe(other, 6, kWorld, &found, MPI_STATUS_IGNORE);
      MPI(Imrecv)(data.data(), n, MPI_INT, &found, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
      CHECK(holds(data, other, 6));
    }
  }
  MPI_Message nobody;
  int untouched = 17;
  MPI_Mprobe(MPI_PROC_NULL, 0, kWorld, &nobody, MPI_STATUS_IGNORE);
  MPI(Mrecv)(&untouched, 1, MPI_INT, &nobody, MPI_STATUS_IGNORE);
  CHECK(untouched == 17);
}

void exchanged() {
  for (const std::size_t count : kCounts) {
    const int n = static_cast<int>(count);
    const auto out = message(count, me, 7);
    std::vector<int> in(count);
    MPI(Sendrecv)
    (out.data(), n, MPI_INT, other, 7, in.data(), n, MPI_INT, other, 7, kWorld, MPI_STATUS_IGNORE);
    CHECK(holds(out, me, 7) && holds(in, other, 7));
    in = out;
    MPI(Sendrecv_replace)(in.data(), n, MPI_INT, other, 8, other, 8, kWorld, MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 7));
    // With MPI_PROC_NULL on one side or on both.
    in.assign(count, 3);
    MPI(Sendrecv)
    (out.data(), n, MPI_INT, MPI_PROC_NULL, 0, in.data(), n, MPI_INT, MPI_PROC_NULL, 0, kWorld,
     MPI_STATUS_IGNORE);
    CHECK(in[0] == 3 && in[count - 1] == 3);
    MPI(Sendrecv)
    (out.data(), n, MPI_INT, me == 0 ? other : MPI_PROC_NULL, 9, in.data(), n, MPI_INT,
     me == 0 ? MPI_PROC_NULL : other, 9, kWorld, MPI_STATUS_IGNORE);
    CHECK(me == 0 ? in[0] == 3 : holds(in, other, 7));
  }
}

// Both at once, where MPI has it.
void exchanged_without_blocking() {
#if MPI_VERSION >= 4
  for (const std::size_t count : kCounts) {
    const int n = static_cast<int>(count);
    const auto out = message(count, me, 7);
    std::vector<int> in(count);
    MPI_Request request;
    MPI(Isendrecv)(out.data(), n, MPI_INT, other, 7, in.data(), n, MPI_INT, other, 7, kWorld, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 7));
    in = out;
    MPI(Isendrecv_replace)(in.data(), n, MPI_INT, other, 8, other, 8, kWorld, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 7));
  }
#endif
}

void nobody_and_nothing() {
  std::vector<int> data(100000, 3);
  MPI_Status status;
  MPI(Send)(data.data(), 100000, MPI_INT, MPI_PROC_NULL, 0, kWorld);
  MPI(Recv)(data.data(), 100000, MPI_INT, MPI_PROC_NULL, 0, kWorld, &status);
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && data[0] == 3);
  MPI(Sendrecv)(nullptr, 0, MPI_INT, other, 1, nullptr, 0, MPI_INT, other, 1, kWorld, &status);
  int received = -1;
  MPI_Get_count(&status, MPI_INT, &received);
  CHECK(received == 0);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  other = 1 - me;
  for (int round = 0; round < 3; ++round) {
    one_way(MPI(Send), false, 1);
    one_way(MPI(Ssend), false, 2);
    one_way(MPI(Rsend), true, 3);
    one_way(P_SEND, false, 4);
    shorter_than_posted();
    matched();
    exchanged();
    exchanged_without_blocking();
    nobody_and_nothing();
  }
  return finish();
}
