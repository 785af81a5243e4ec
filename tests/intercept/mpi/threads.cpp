// MPI_THREAD_MULTIPLE: four threads a rank, each with tags and buffers of its own, in all the ways at once;
// two ranks. Threads come and go between the rounds.
#include <thread>

#include "check.h"

namespace {

constexpr int kThreads = 4, kRounds = 25, kCount = 7001;
int me, other;

void talk(int thread, long& failures) {
  const MPI_Comm world = MPI_COMM_WORLD;
  const int tag = 10 * thread;
  for (int round = 0; round < kRounds; ++round) {
    const auto count = static_cast<std::size_t>(kCount + 1000 * (round % 3));
    const int n = static_cast<int>(count);
    const auto out = message(count, me, tag + round);
    std::vector<int> in(count);
    const auto check = [&] { failures += holds(in, other, tag + round) ? 0 : 1; };

    MPI_Request requests[2];
    MPI_Irecv(in.data(), n, MPI_INT, other, tag, world, &requests[0]);
    MPI_Isend(out.data(), n, MPI_INT, other, tag, world, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check();
    in.assign(count, 0);
    MPI_Sendrecv(out.data(), n, MPI_INT, other, tag + 1, in.data(), n, MPI_INT, other, tag + 1, world,
                 MPI_STATUS_IGNORE);
    check();
    in.assign(count, 0);
    MPI_Irecv(in.data(), n, MPI_INT, other, tag + 2, world, &requests[0]);
    MPI_Send(out.data(), n, MPI_INT, other, tag + 2, world);
    for (int flag = 0; !flag;) {
      MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
      if (!flag) std::this_thread::yield();
    }
    check();
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  me = world_rank();
  other = 1 - me;
  CHECK(provided == MPI_THREAD_MULTIPLE);
  for (int generation = 0; generation < 2; ++generation) {
    long failures[kThreads] = {};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(talk, i, std::ref(failures[i]));
    for (auto& thread : threads) thread.join();
    for (const long count : failures) CHECK(count == 0);
  }
  return finish();
}
