/*
 * collapse SECONDS: uses three buffers in turn on cores that are all busy, so that the helper cannot afford
 * to have them back, until most of their memory lies in hugepages, or for so long. Meanwhile a thread writes
 * to all pages, and children are forked that compare theirs. Prints how much lies in hugepages, "whole" if no
 * write was lost, and the children that found theirs whole.
 */
#define _GNU_SOURCE
#include <pinion/pinion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BUFFERS = 3, BYTES = 24 << 20, PAGE = 4096, PAGES = BYTES / PAGE };

static char* buffers[BUFFERS];
static unsigned written[BUFFERS][PAGES];
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER; /* between two writes for a fork */
static atomic_int done;

static void check(int failed, const char* what) {
  if (!failed) return;
  printf("failed: %s\n", what);
  exit(1);
}
static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static void* burn(void* unused) {
  for (volatile unsigned turns = 0; !atomic_load(&done);) ++turns;
  return unused;
}

static unsigned* word(int buffer, int page) { return (unsigned*)(buffers[buffer] + (size_t)page * PAGE); }

static int whole(void) {
  for (int b = 0; b < BUFFERS; ++b)
    for (int page = 0; page < PAGES; ++page)
      if (*word(b, page) != written[b][page]) return 0;
  return 1;
}

static void* write_all(void* unused) {
  for (unsigned turn = 1; !atomic_load(&done); ++turn)
    for (int b = 0; b < BUFFERS; ++b)
      for (int page = 0; page < PAGES; ++page) {
        pthread_mutex_lock(&writing);
        written[b][page] += turn;
        *word(b, page) += turn;
        pthread_mutex_unlock(&writing);
      }
  return unused;
}

static int child_finds_all(void) {
  int status = 1;
  pthread_mutex_lock(&writing);
  const pid_t child = fork();
  if (child == 0) _exit(!whole());
  pthread_mutex_unlock(&writing);
  check(child < 0, "fork");
  waitpid(child, &status, 0);
  return status == 0;
}

/* The kibibytes of the process's memory in transparent hugepages. */
static unsigned long in_hugepages(void) {
  char line[256];
  unsigned long kib = 0;
  FILE* const rollup = fopen("/proc/self/smaps_rollup", "r");
  check(!rollup, "/proc/self/smaps_rollup");
  while (fgets(line, sizeof line, rollup))
    if (sscanf(line, "AnonHugePages: %lu", &kib) == 1) break;
  fclose(rollup);
  return kib;
}

int main(int argc, char** argv) {
  const double until = now() + (argc > 1 ? atof(argv[1]) : 60);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t thread, writer;
  pinion_domain* domain;
  int children = 0, kept = 0;
  for (int b = 0; b < BUFFERS; ++b) {
    buffers[b] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(buffers[b], 0, BYTES);
  }
  check(pinion_start(NULL), "start");
  check(pinion_domain_open("pin", NULL, &domain), "domain");
  for (long i = 1; i < cores; ++i) pthread_create(&thread, NULL, burn, NULL);
  pthread_create(&writer, NULL, write_all, NULL);
  for (int turn = 0; now() < until; ++turn) {
    pinion_lease lease = PINION_LEASE_INIT;
    check(pinion_acquire(domain, buffers[turn % BUFFERS], BYTES, 1, &lease), "acquire");
    check(pinion_release(&lease), "release");
    for (const double next = now() + .05; now() < next;) {
    }
    if (turn % 20 != 0) continue;
    ++children;
    kept += child_finds_all();
    if (in_hugepages() >= 2ul * BUFFERS * BYTES / 3 / 1024) break;
  }
  atomic_store(&done, 1);
  pthread_join(writer, NULL);
  printf("%lu MiB in hugepages, %s, %d of %d children\n", in_hugepages() / 1024,
         whole() ? "whole" : "NOT whole", kept, children);
  return !whole() || kept != children;
}
