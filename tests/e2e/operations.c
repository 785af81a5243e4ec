/* One operation of the C API, or of the heap, in a function that callgrind counts by its name: op_lease,
 * op_unmap, op_block.
 *
 *     operations NAME ROUNDS OPTIONS [FLAGS]
 *
 * NAME: hit (of one buffer), hits (of a buffer a round), miss, unmap, block. All runs twice, so that the
 * second call of the function has nothing to do that is done once. OPTIONS: of pinion_start(). FLAGS: of a
 * device of the program's own, instead of the options'. */
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kBytes = 1 << 16, kBlock = 300000, kMostRounds = 8192 };
static char ordinary[kBytes];
static char* buffers[kMostRounds];
static int failed;

__attribute__((noinline)) void op_lease(pinion_domain* domain, char** at, long rounds) {
  for (long i = 0; i < rounds; ++i) {
    pinion_lease lease;
    failed |= pinion_acquire(domain, at[i], kBytes, PINION_ACCESS_WRITE, &lease);
    failed |= pinion_release(&lease);
  }
}

/* Of registered memory, as a program announces it that calls the kernel itself. */
__attribute__((noinline)) void op_unmap(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    failed |= pinion_memory_begin(buffers[i], kBytes);
    failed |= munmap(buffers[i], kBytes);
    failed |= pinion_memory_end(buffers[i], kBytes);
  }
}

__attribute__((noinline)) void op_block(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    char* volatile block = malloc(kBlock);
    failed |= block == NULL;
    free(block);
  }
}

static int take(void* own, void* address, size_t bytes, unsigned access, struct pinion_registration* made) {
  return (void)own, (void)address, (void)bytes, (void)access, (void)made, 0;
}
static int leave(void* own, uint64_t handle) { return (void)own, (void)handle, 0; }

/* A device of the program's own, with these flags. */
static int open_own(const char* flags, pinion_domain** domain) {
  static struct pinion_device_operations own = {sizeof own, PINION_DEVICE_VERSION};
  own.register_memory = take;
  own.deregister_memory = leave;
  own.flags = (unsigned)atoi(flags);
  return pinion_domain_open_operations(&own, domain);
}

/* Touched memory, a mapping a round. */
static void map(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    /* Pages without access lie between two of them. */
    char* const all = mmap(NULL, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    buffers[i] = all + kBytes / 2;
    failed |= all == MAP_FAILED || mprotect(buffers[i], kBytes, PROT_READ | PROT_WRITE);
    if (!failed) memset(buffers[i], 1, kBytes);
  }
}

static int run(const char* name, pinion_domain* domain, long rounds) {
  const int hit = strcmp(name, "hit") == 0, hits = strcmp(name, "hits") == 0,
            unmap = strcmp(name, "unmap") == 0;
  if (!hit && !hits && !unmap && strcmp(name, "miss") != 0 && strcmp(name, "block") != 0) return 1;
  char* const one = getenv("LD_PRELOAD") ? malloc(kBytes) : ordinary;
  for (int batch = 0; batch < 2; ++batch) {
    if (hit)
      for (long i = 0; i < rounds; ++i) buffers[i] = one;
    else if (!hits || batch == 0)
      map(rounds);
    if (strcmp(name, "block") == 0)
      op_block(rounds);
    else
      op_lease(domain, buffers, rounds);
    if (unmap) op_unmap(rounds);
    usleep(200000); /* the helper catches up */
  }
  return failed;
}

int main(int argc, char** argv) {
  pinion_domain* domain = NULL;
  const long rounds = argc < 4 ? 0 : atol(argv[2]);
  failed = rounds < 1 || rounds > kMostRounds || pinion_start(argv[3]) ||
           (argc == 5 ? open_own(argv[4], &domain) : pinion_domain_open(NULL, NULL, &domain)) ||
           run(argv[1], domain, rounds) || pinion_domain_close(domain) || pinion_stop();
  if (failed) fprintf(stderr, "operations: %s\n", pinion_last_error());
  return failed;
}
