/* Two ranks with four phases each turn: computation, then an exchange from and into buffers of the phase's
 * own. One pair of buffers is in use at a time. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PHASES = 4, TURNS = 20, COUNT = 2 << 20 }; /* doubles: 16 MiB */

static void compute(double* x) {
  for (int pass = 0; pass < 10; ++pass)
    for (int i = 0; i < COUNT; ++i) x[i] = 0.5 * x[i] + 1;
}

static void exchange(const double* out, double* in, int peer) {
  MPI_Sendrecv(out, COUNT, MPI_DOUBLE, peer, 0, in, COUNT, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

int main(int argc, char** argv) {
  int rank;
  double *out[PHASES], *in[PHASES];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int phase = 0; phase < PHASES; ++phase) {
    out[phase] = calloc(COUNT, sizeof *out[phase]);
    in[phase] = calloc(COUNT, sizeof *in[phase]);
  }
  for (int turn = 0; turn < TURNS; ++turn)
    for (int phase = 0; phase < PHASES; ++phase) {
      compute(out[phase]);
      exchange(out[phase], in[phase], 1 - rank);
    }
  if (rank == 0) printf("phases: %s\n", in[3][COUNT - 1] == out[3][COUNT - 1] ? "verified" : "FAILED");
  MPI_Finalize();
  return 0;
}
