// Messages of 8 bytes, far below the size that is registered: what an MPI call costs. Plain MPI, with no part
// of Pinion in it; `pinion bench p2p` runs it with and without the preload, tests/e2e/mpi_instructions.sh
// counts the instructions of its cases.
//
//   p2p RANKS [BATCHES ROUNDS [CASE]]
//
// The case `allreduce` runs only where it is named: its buffer is large enough to be registered, and no MPI
// moves it (`pinion bench acquire`).
//
// Of two ranks, rank 0 prints for each case the nanoseconds of a call, in the best batch of rounds. One rank
// sends to itself, which is slow on no core but its own.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace {

constexpr int kWindow = 16;
double g_out = 1, g_in = 0;
constexpr int kLarge = 8192;
double g_large[kLarge];
int g_rank = 0, g_peer = 0;

struct Case {
  const char* name;
  void (*rounds)(long);
  int calls;   ///< of MPI, by one rank in one round
  int fewest;  ///< ranks
  bool unasked = true;
};

}  // namespace

// Not in the namespace, and not inlined: callgrind knows them by these names.
extern "C" {

[[gnu::noinline]] void p2p_ping_pong(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    if (g_rank == 0) MPI_Send(&g_out, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD);
    MPI_Recv(&g_in, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (g_rank != 0) MPI_Send(&g_out, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD);
  }
}

[[gnu::noinline]] void p2p_window(long rounds) {
  MPI_Request requests[2 * kWindow];
  for (long i = 0; i < rounds; ++i) {
    for (int k = 0; k < kWindow; ++k)
      MPI_Irecv(&g_in, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD, &requests[k]);
    for (int k = 0; k < kWindow; ++k)
      MPI_Isend(&g_out, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD, &requests[kWindow + k]);
    MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
  }
}

[[gnu::noinline]] void p2p_sendrecv(long rounds) {
  for (long i = 0; i < rounds; ++i)
    MPI_Sendrecv(&g_out, 1, MPI_DOUBLE, g_peer, 1, &g_in, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

[[gnu::noinline]] void p2p_self(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    MPI_Request request;
    MPI_Irecv(&g_in, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
    MPI_Send(&g_out, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

// Polling for a message that does not come.
[[gnu::noinline]] void p2p_poll(long rounds) {
  MPI_Request request;
  int index = 0, flag = 0;
  MPI_Irecv(&g_in, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
  for (long i = 0; i < rounds; ++i) MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE);
  MPI_Send(&g_out, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// In place, with nobody else: the call returns at once.
[[gnu::noinline]] void p2p_allreduce(long rounds) {
  for (long i = 0; i < rounds; ++i)
    MPI_Allreduce(MPI_IN_PLACE, g_large, kLarge, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}

}  // extern "C"

namespace {

constexpr Case kCases[] = {
    {"ping-pong", p2p_ping_pong, 2, 2}, {"window", p2p_window, 2 * kWindow + 1, 1},
    {"sendrecv", p2p_sendrecv, 1, 1},   {"self", p2p_self, 3, 1},
    {"poll", p2p_poll, 1, 1},           {"allreduce", p2p_allreduce, 1, 1, false},
};

double best_ns(const Case& measured, long batches, long rounds) {
  double best = std::numeric_limits<double>::infinity();
  for (long batch = 0; batch < batches; ++batch) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    measured.rounds(rounds);
    best = std::min(best, MPI_Wtime() - begin);
  }
  return best * 1e9 / (static_cast<double>(rounds) * measured.calls);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  g_peer = ranks - 1 - g_rank;
  const bool as_asked = (argc == 2 || argc == 4 || argc == 5) && ranks <= 2 && ranks == std::atoi(argv[1]);
  if (!as_asked && g_rank == 0)
    std::fprintf(stderr,
                 "p2p: started with %d ranks; usage: p2p 1|2 [BATCHES ROUNDS [CASE]], in so many ranks\n",
                 ranks);
  for (const Case& one : kCases) {
    if (!as_asked || ranks < one.fewest) continue;
    if (argc == 5 ? std::strcmp(argv[4], one.name) != 0 : !one.unasked) continue;
    // A window is many messages.
    const long rounds = argc >= 4 ? std::atol(argv[3]) : 8000 / one.calls;
    const double ns = best_ns(one, argc >= 4 ? std::atol(argv[2]) : 40, rounds);
    if (g_rank == 0) std::printf("%s %.2f\n", one.name, ns);
  }
  MPI_Finalize();
  return as_asked ? EXIT_SUCCESS : EXIT_FAILURE;
}
