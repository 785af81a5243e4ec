/*
 * sandboxed [CALLS-FILE] [thread]: transfers under Pinion, after its start and a call of getppid(), and
 * changes the memory meanwhile. Then it may call only the system calls whose numbers are in the file: another
 * one ends the process. `thread`: all that is done, and the sandbox is, by a thread that is not the first.
 * Prints "went on".
 *
 * With WITH_MPI an MPI program; otherwise one of the C API.
 */
#define _GNU_SOURCE
#ifdef WITH_MPI
#include <mpi.h>
#else
#include <pinion/pinion.h>
#endif
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4 << 20, MOST = 400 };

static const char* calls;
static char *kept, *received;

static void check(int failed, const char* what) {
  if (!failed) return;
  printf("failed: %s\n", what);
  exit(1);
}

#ifdef WITH_MPI
static void begin(void) { MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &(int){0}); }
static void end(void) { MPI_Finalize(); }
static void transfer(char* from, char* to) {
  MPI_Sendrecv(from, BYTES, MPI_CHAR, 0, 1, to, BYTES, MPI_CHAR, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
}
#else
static pinion_domain* domain;
static void begin(void) {
  check(pinion_start(NULL), "start");
  check(pinion_domain_open("pin", NULL, &domain), "domain");
}
static void end(void) { check(pinion_stop(), "stop"); }
static void transfer(char* from, char* to) {
  pinion_lease lease = PINION_LEASE_INIT;
  check(pinion_acquire(domain, from, BYTES, 1, &lease), "acquire");
  memcpy(to, from, BYTES);
  check(pinion_release(&lease), "release");
}
#endif

static void close_sandbox(void) {
  struct sock_filter filter[2 * MOST + 2];
  unsigned short n = 0;
  unsigned call;
  FILE* const file = fopen(calls, "r");
  check(!file, "the list of calls");
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  while (fscanf(file, "%u", &call) == 1 && n < 2 * MOST) {
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  fclose(file);
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  const struct sock_fprog program = {n, filter};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0, "no new privileges");
  check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0,
        "the filter");
}

static void change_memory(int transfers) {
  char* mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(mapped, 1, BYTES);
  if (transfers) transfer(mapped, received);
  madvise(mapped, BYTES / 2, MADV_DONTNEED);
  mprotect(mapped, BYTES, PROT_READ);
  mapped = mremap(mapped, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
  munmap(mapped, 2 * BYTES);
  char* const large = malloc(16 * BYTES);
  memset(large, 1, 16 * BYTES);
  if (transfers) transfer(large, received);
  free(large);
  if (sbrk(1 << 20) != (void*)-1) sbrk(-(1 << 20));
  const struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL);
}

static void* work(void* unused) {
  change_memory(0);
  syscall(SYS_getppid);
  if (calls) close_sandbox();
  for (int round = 0; round < 10; ++round) {
    transfer(kept, received);
    change_memory(1);
  }
  return unused;
}

int main(int argc, char** argv) {
  pthread_t thread;
  if (argc > 1 && *argv[1]) calls = argv[1];
  begin();
  kept = malloc(BYTES);
  received = malloc(BYTES);
  memset(kept, 1, BYTES);
  if (argc > 2) {
    check(pthread_create(&thread, NULL, work, NULL) != 0, "a thread");
    pthread_join(thread, NULL);
  } else {
    work(NULL);
  }
  end();
  puts("went on");
  return 0;
}
