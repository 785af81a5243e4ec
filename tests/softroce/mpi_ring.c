// mpi_ring BYTES ROUNDS BUFFERS: each rank sends buffers to the next one in turn, and checks what it
// receives. Prints "verified" and the CPU time of all ranks. Links nothing of Pinion; any MPI compiles it.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static double seconds(struct timeval time) { return (double)time.tv_sec + 1e-6 * (double)time.tv_usec; }

static int content(int word, int round, int rank) { return word * 7 + round * 13 + rank * 1001; }

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, wrong = 0, all_wrong;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
  const int words = atoi(argv[1]) / (int)sizeof(int), rounds = atoi(argv[2]), buffers = atoi(argv[3]);
  const int before = (rank + ranks - 1) % ranks, behind = (rank + 1) % ranks;
  int** sent = malloc((size_t)buffers * sizeof(int*));
  int** received = malloc((size_t)buffers * sizeof(int*));
  for (int i = 0; i < buffers; ++i) {
    sent[i] = malloc((size_t)words * sizeof(int));
    received[i] = malloc((size_t)words * sizeof(int));
  }
  for (int round = 0; round < rounds; ++round) {
    const int i = round % buffers;
    MPI_Request requests[2];
    for (int word = 0; word < words; ++word) {
      sent[i][word] = content(word, round, rank);
      received[i][word] = 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Irecv(received[i], words, MPI_INT, before, round, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent[i], words, MPI_INT, behind, round, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int word = 0; word < words; ++word) wrong += received[i][word] != content(word, round, before);
  }
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double cpu = seconds(used.ru_utime) + seconds(used.ru_stime), all_cpu;
  MPI_Reduce(&cpu, &all_cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%s, CPU %.3f s\n", all_wrong ? "WRONG" : "verified", all_cpu);
  MPI_Finalize();
  return all_wrong != 0;
}
