/*
 * One-sided puts and gets: each process puts a line into its neighbour's memory, counts in at process 0, and
 * reads its own line back. Nothing is registered by hand.
 *
 *   mpirun -n 4 firehose
 *
 * Process 0 prints `firehose: verified` when all lines and the count are right.
 */
#include <pinion/firehose.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, MOST = 1024 };

static void check(const char* what, int code) {
  if (code == 0) return;
  fprintf(stderr, "firehose: %s: %s\n", what, pinion_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  struct pinion_firehose_options options = {.size = sizeof options};
  pinion_firehose* firehose;
  uint64_t addresses[MOST], count = 0;
  struct {
    char line[LINE];
    uint64_t count;
  }* memory = calloc(1, sizeof *memory);
  char mine[LINE], back[LINE];

  (void)argv;
  if (argc > 1 || !memory) {
    fprintf(stderr, "firehose: takes no arguments; start it by mpirun or srun\n");
    return 2;
  }
  check("open", pinion_firehose_open(&options, &firehose));
  const unsigned self = pinion_firehose_process(firehose), all = pinion_firehose_processes(firehose);
  if (all > MOST) {
    fprintf(stderr, "firehose: %u processes are more than %d\n", all, MOST);
    return 2;
  }
  /* Addresses of the memory in each process. */
  const uint64_t address = (uint64_t)(uintptr_t)memory;
  check("exchange", pinion_firehose_exchange(firehose, &address, sizeof address, addresses));

  const unsigned next = (self + 1) % all;
  snprintf(mine, sizeof mine, "process %u was here", self);
  check("put", pinion_firehose_put(firehose, next, addresses[next], mine, sizeof mine));
  check("get", pinion_firehose_get(firehose, next, addresses[next], back, sizeof back));
  const uint64_t counter = addresses[0] + LINE, right = memcmp(mine, back, sizeof mine) == 0;
  check("atomic", pinion_firehose_atomic(firehose, 0, counter, 8, PINION_FIREHOSE_ADD, right, 0, NULL));
  check("barrier", pinion_firehose_barrier(firehose));

  check("atomic", pinion_firehose_atomic(firehose, 0, counter, 8, PINION_FIREHOSE_FETCH, 0, 0, &count));
  snprintf(back, sizeof back, "process %u was here", (self + all - 1) % all);
  const int verified = count == all && strcmp(memory->line, back) == 0;
  if (self == 0) printf("firehose: %s\n", verified ? "verified" : "wrong");
  check("close", pinion_firehose_close(firehose));
  free(memory);
  return verified ? 0 : 1;
}
