/*
 * sandboxed [CALLS-FILE] [WAY]...: transfers under Pinion, after its start and a call of getppid(), and
 * changes the memory meanwhile. Then it may call only the system calls whose numbers are in the file: another
 * one ends the process. Prints "went on".
 *
 *   thread    all that is done, and the sandbox is closed, by a thread that is not the first
 *   alone     the sandbox is of the closing thread alone
 *   first     the sandbox is closed before anything is transferred
 *   child     all that is done by a forked child
 *   landlock  the sandbox is Landlock's, and no file can be opened from then on
 *
 * With WITH_MPI an MPI program, with WITH_VERBS one of libibverbs, with WITH_NOTHING neither; otherwise one
 * of the C API.
 */
#define _GNU_SOURCE
#ifdef WITH_MPI
#include <mpi.h>
#elif defined WITH_VERBS
#include <infiniband/verbs.h>
#elif !defined WITH_NOTHING
#include <pinion/pinion.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4 << 20, MOST = 400 };

static const char* calls;
static char *kept, *received;
static int alone, first, landlock;

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
#elif defined WITH_VERBS
static struct ibv_pd* pd;
static void transfer(char* from, char* to) {
  struct ibv_mr* const region = ibv_reg_mr(pd, from, BYTES, IBV_ACCESS_LOCAL_WRITE);
  check(!region, "registration");
  memcpy(to, from, BYTES);
  check(ibv_dereg_mr(region), "deregistration");
}
/* Pinion starts with the first registration. */
static void begin(void) {
  struct ibv_device** const devices = ibv_get_device_list(NULL);
  struct ibv_context* const context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
  pd = context ? ibv_alloc_pd(context) : NULL;
  check(!pd, "a protection domain");
  if (!first) transfer(kept, received);
}
static void end(void) {}
#elif defined WITH_NOTHING
static void begin(void) {}
static void end(void) {}
static void transfer(char* from, char* to) { memcpy(to, from, BYTES); }
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

static void close_landlock(void) {
  const struct landlock_ruleset_attr all = {.handled_access_fs =
                                                LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                                LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_MAKE_REG};
  const long rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
  if (rules < 0) {
    puts("no Landlock");
    exit(77);
  }
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0, "no new privileges");
  check(syscall(SYS_landlock_restrict_self, rules, 0) != 0, "Landlock");
  close((int)rules);
  check(open("/proc/self/maps", O_RDONLY) >= 0 || errno != EACCES, "files cannot be opened");
}

static void close_sandbox(void) {
  if (landlock) {
    close_landlock();
    return;
  }
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
  const int whose = alone ? 0 : SECCOMP_FILTER_FLAG_TSYNC;
  check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, whose, &program) != 0, "the filter");
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
  const int segment = shmget(IPC_PRIVATE, BYTES, 0600);
  char* const shared = segment < 0 ? (char*)-1 : shmat(segment, NULL, 0);
  if (segment >= 0) shmctl(segment, IPC_RMID, NULL);
  if (shared != (char*)-1) {
    if (transfers) transfer(shared, received);
    shmdt(shared);
  }
  const struct timespec pause = {0, 20000000};
  nanosleep(&pause, NULL);
}

static void* work(void* unused) {
  if (!first) change_memory(0);
  syscall(SYS_getppid);
  if (calls) close_sandbox();
  for (int round = 0; round < 10; ++round) {
    memset(kept, round, BYTES);
    transfer(kept, received);
    check(memcmp(kept, received, BYTES), "the bytes");
    change_memory(1);
  }
  return unused;
}

int main(int argc, char** argv) {
  int in_thread = 0, in_child = 0, status = 0;
  if (argc > 1 && *argv[1]) calls = argv[1];
  for (int i = 2; i < argc; ++i) {
    in_thread |= !strcmp(argv[i], "thread");
    in_child |= !strcmp(argv[i], "child");
    alone |= !strcmp(argv[i], "alone");
    first |= !strcmp(argv[i], "first");
    landlock |= !strcmp(argv[i], "landlock");
  }
  if (in_child && fork() > 0) {
    wait(&status);
    return status != 0;
  }
  kept = malloc(BYTES);
  received = malloc(BYTES);
  memset(kept, 1, BYTES);
  begin();
  if (in_thread) {
    pthread_t thread;
    check(pthread_create(&thread, NULL, work, NULL) != 0, "a thread");
    pthread_join(thread, NULL);
  } else {
    work(NULL);
  }
  end();
  puts("went on");
  return 0;
}
