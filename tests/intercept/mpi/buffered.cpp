// Buffered mode: the program may reuse the buffer at once, in any way. Two ranks.
#include <initializer_list>

#include "forms.h"

namespace {

constexpr int kCount = 30011;
const MPI_Comm kWorld = MPI_COMM_WORLD;

void receive(int other, int what) {
  std::vector<int> in(kCount);
  MPI_Recv(in.data(), kCount, MPI_INT, other, what, kWorld, MPI_STATUS_IGNORE);
  CHECK(holds(in, other, what));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank(), other = 1 - me;
  std::vector<char> attached(4 * (kCount * sizeof(int) + MPI_BSEND_OVERHEAD));
  MPI_Buffer_attach(attached.data(), static_cast<int>(attached.size()));
  std::vector<int> data(kCount);
  for (int round = 0; round < 5; ++round) {
    fill(data.data(), kCount, me, 1);
    MPI(Bsend)(data.data(), kCount, MPI_INT, other, 1, kWorld);
    fill(data.data(), kCount, me, 2);
    MPI_Request request;
    MPI(Ibsend)(data.data(), kCount, MPI_INT, other, 2, kWorld, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    fill(data.data(), kCount, me, 3);
    MPI(Bsend_init)(data.data(), kCount, MPI_INT, other, 3, kWorld, &request);
    run_persistent(request);
    data.assign(kCount, 0);
    for (const int what : {1, 2, 3}) receive(other, what);
    MPI_Barrier(kWorld);
  }
  void* memory;
  int size;
  MPI_Buffer_detach(&memory, &size);
  CHECK(memory == attached.data());
  return finish();
}
