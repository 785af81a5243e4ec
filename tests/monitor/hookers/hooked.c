/*
 * One row of the matrix of foreign hookers: another library that hooks memory events is in this process, with
 * Pinion or without, and memory goes in every way. Judged by the bytes that a device reads (fixed buffers of
 * an io_uring, which keep the pages of their registration, as a NIC does).
 *
 *   hooked HOOKER ORDER with|without EVENT...
 *
 * HOOKER  ucx, openmpi, patcher, brk-patcher, preload, userfaultfd, tcmalloc, or an allocator that is
 * preloaded and hears nothing (jemalloc, mimalloc, none) ORDER   before, after: its hooks are older or
 * younger than Pinion's; later: it comes while memory is registered; unloaded: it came later and has left
 *
 * A cache like the hooker's own stands on what it hears: a registration that is used until an event for it is
 * heard. RDMA libraries send by their real caches (own_caches.c). Pinion's cache is the other one. Prints a
 * line "EVENT FOREIGN PINION" for each event, where the words are `new`, `old` (the device read lost pages)
 * or `-` (there is none), or a line "EVENT absent: REASON". With `absent: REASON` alone the row cannot exist
 * here (status 77).
 */
#define _GNU_SOURCE
#include "hooked.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <malloc.h>
#include <pinion/pinion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

enum { kBytes = 256 << 10, kPage = 4096, kSlots = 64, kRounds = 3 };

void absent(const char* reason) {
  printf("absent: %s\n", reason);
  exit(77);
}
static void broken(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

/* ---- the device ---- */

static struct io_uring ring;
static char used[kSlots];
static int wire;

static int update(unsigned slot, void* address, size_t bytes) {
  struct iovec buffer = {address, bytes};
  __u64 tag = 0;
  const int updated = io_uring_register_buffers_update_tag(&ring, slot, &buffer, &tag, 1);
  return updated == 1 ? 0 : updated == 0 ? EIO : -updated;
}
static int take_slot(void* address, size_t bytes, uint64_t* slot) {
  for (unsigned i = 1; i < kSlots; ++i) {
    if (__sync_lock_test_and_set(&used[i], 1)) continue;
    const int error = update(i, address, bytes);
    if (error) used[i] = 0;
    *slot = i;
    return error;
  }
  return ENOSPC;
}
static int let_slot_go(uint64_t slot) {
  const int error = update((unsigned)slot, NULL, 0);
  if (!error) __sync_lock_release(&used[slot]);
  return error;
}
/* The byte that the device sends for the one at `address`. */
static int sent(unsigned slot, const char* address) {
  struct io_uring_sqe* const entry = io_uring_get_sqe(&ring);
  io_uring_prep_write_fixed(entry, wire, address, 1, 0, (int)slot);
  struct io_uring_cqe* done;
  io_uring_submit_and_wait(&ring, 1);
  if (io_uring_wait_cqe(&ring, &done) || done->res != 1) return -1;
  io_uring_cqe_seen(&ring, done);
  char byte;
  return pread(wire, &byte, 1, 0) == 1 ? byte : -1;
}
static void open_device(void) {
  wire = memfd_create("wire", MFD_CLOEXEC);
  if (io_uring_queue_init(8, &ring, 0)) absent("no io_uring here");
  if (io_uring_register_buffers_sparse(&ring, kSlots)) absent("no fixed buffers here");
}

/* ---- the cache that stands on what the hooker hears ---- */

static struct {
  char* volatile begin, * volatile end;
  volatile int valid;
} cached;
static int hears; /* the hooker reports events, or its own cache meets them */
static const struct hooker* hooker;
static int is_here;

void heard(const void* address, size_t bytes) {
  const char* const begin = address;
  if (begin < cached.end && cached.begin < begin + bytes) cached.valid = 0;
}
static int sent_by_foreign(char* memory) {
  if (hooker->send) return is_here ? hooker->send(memory, kBytes) : memory[kBytes / 2];
  if (!cached.valid || cached.begin != memory) {
    if (update(0, memory, kBytes)) broken("register");
    cached.begin = memory;
    cached.end = memory + kBytes;
    cached.valid = 1;
  }
  return sent(0, memory + kBytes / 2);
}

/* ---- Pinion's ---- */

static pinion_domain* domain; /* null: without */

static int reg(void* context, void* address, size_t bytes, unsigned access, struct pinion_registration* out) {
  (void)context, (void)access;
  return take_slot(address, bytes, &out->handle);
}
static int dereg(void* context, uint64_t slot) {
  (void)context;
  return let_slot_go(slot);
}
static void start_pinion(void) {
  static struct pinion_device_operations device = {.size = sizeof device,
                                                   .version = PINION_DEVICE_VERSION,
                                                   .register_memory = reg,
                                                   .deregister_memory = dereg};
  const char* const options = getenv("HOOKED_OPTIONS");
  if (pinion_start(options ? options : "retention=leave-pinned,monitor=libc") ||
      pinion_domain_open_operations(&device, &domain))
    broken(pinion_last_error());
}
enum { kRefused = -2 };
static int sent_by_pinion(char* memory) {
  pinion_lease lease;
  struct pinion_keys keys = {.size = sizeof keys};
  const int error = pinion_acquire(domain, memory, kBytes, PINION_ACCESS_WRITE, &lease);
  /* Older kernels: memory of System V is no buffer of an io_uring. */
  if (error == EOPNOTSUPP && hooker->send) return kRefused;
  if (error) broken(pinion_last_error());
  if (pinion_lease_keys(&lease, &keys)) broken("keys");
  const int byte = sent((unsigned)keys.handle, memory + kBytes / 2);
  pinion_release(&lease);
  return byte;
}

/* ---- events: the memory at `memory` goes, and other memory is at its place ---- */

static char* map(void* at, int flags) {
  char* const m = mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (m == MAP_FAILED) broken("mmap");
  return m;
}
static char* map_apart(void) { /* with room around it, so that nothing joins it */
  char* const m = mmap(NULL, 3 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mprotect(m + kBytes, kBytes, PROT_READ | PROT_WRITE)) broken("mprotect");
  return m + kBytes;
}

static void go_munmap(char* m) {
  munmap(m, kBytes);
  map(m, MAP_FIXED_NOREPLACE);
}
static void go_mmap_over(char* m) { map(m, MAP_FIXED); }
static void go_madvise(char* m) { madvise(m, kBytes, MADV_DONTNEED); }
static void go_mremap_from(char* m) { /* what follows is in its way, so it moves */
  if (mremap(m, kBytes, 2 * kBytes, MREMAP_MAYMOVE) == MAP_FAILED) broken("mremap");
  map(m, MAP_FIXED_NOREPLACE);
}
static void go_mremap_to(char* m) {
  char* const other = map(NULL, 0);
  if (mremap(other, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, m) != m) broken("mremap");
}
static int segment(void) {
  const int id = shmget(IPC_PRIVATE, kBytes, 0600);
  if (id < 0) broken("shmget");
  return id;
}
static void go_shmat_over(char* m) {
  const int id = segment();
  if (shmat(id, m, SHM_REMAP) != m) broken("shmat");
  shmctl(id, IPC_RMID, NULL);
}
static char* make_segment(void) {
  char* const m = map_apart();
  munmap(m, kBytes);
  const int id = segment();
  if (shmat(id, m, 0) != m) broken("shmat");
  shmctl(id, IPC_RMID, NULL);
  return m;
}
static void go_shmdt(char* m) {
  shmdt(m);
  const int id = segment();
  if (shmat(id, m, 0) != m) broken("shmat");
  shmctl(id, IPC_RMID, NULL);
}
static int file = -1;
static char* make_file(void) {
  file = memfd_create("cut", MFD_CLOEXEC);
  if (ftruncate(file, kBytes)) broken("ftruncate");
  char* const m = map_apart();
  if (mmap(m, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != m) broken("mmap");
  return m;
}
static void go_truncate(char* m) {
  (void)m;
  if (ftruncate(file, 0) || ftruncate(file, kBytes)) broken("ftruncate");
}
static char* make_heap_top(void) {
  char* const at = sbrk(0);
  if (sbrk(kPage - (uintptr_t)at % kPage) == (void*)-1) broken("sbrk");
  char* const m = sbrk(kBytes);
  if (m == (void*)-1) broken("sbrk");
  return m;
}
static void go_sbrk(char* m) {
  if (sbrk(-kBytes) != m + kBytes || sbrk(kBytes) != m) broken("sbrk");
}
static void go_brk(char* m) {
  if (brk(m) || brk(m + kBytes)) broken("brk");
}
/* free() trims the heap, and malloc() grows it again: libc's own calls. */
static char* block;
static char* make_block(void) {
  block = malloc(4 * kBytes);
  return (char*)(((uintptr_t)block + kBytes + kPage - 1) & ~(uintptr_t)(kPage - 1));
}
static int block_has_moved;
static void go_heap(char* m) {
  (void)m;
  char* const was = block;
  free(block);
  block = malloc(4 * kBytes);
  block_has_moved = block != was;
}

static const struct event {
  const char* name;
  char* (*make)(void);
  void (*go)(char*);
} kEvents[] = {
    {"munmap", map_apart, go_munmap},           {"mmap-over", map_apart, go_mmap_over},
    {"mremap-from", map_apart, go_mremap_from}, {"mremap-to", map_apart, go_mremap_to},
    {"madvise", map_apart, go_madvise},         {"brk", make_heap_top, go_brk},
    {"sbrk", make_heap_top, go_sbrk},           {"heap", make_block, go_heap},
    {"shmat-over", map_apart, go_shmat_over},   {"shmdt", make_segment, go_shmdt},
    {"truncate", make_file, go_truncate},
};

/* ---- the row ---- */

static void come(void) {
  hears = hooker->load();
  is_here = 1;
}
static const char* word(int byte, int expected) { return byte == expected ? "new" : "old"; }

/* Memory is used by both caches, goes, and is used again. `between` runs while it is registered. */
static void run(const struct event* event, void (*between)(void)) {
  char* const memory = event->make();
  int foreign = 1, ours = 1, refused = 0;
  for (int round = 1; round <= kRounds && foreign && ours; ++round) {
    const char before = (char)(2 * round), after = (char)(2 * round + 1);
    memset(memory, before, kBytes);
    if (sent_by_foreign(memory) != before) broken("the foreign cache starts with old contents");
    const int first = domain ? sent_by_pinion(memory) : before;
    refused = first == kRefused;
    ours = ours && (refused || first == before);
    if (between) between();
    between = NULL;
    if (hooker->watch) hooker->watch(memory, kBytes);
    event->go(memory);
    if (hooker->settle) hooker->settle();
    if (block_has_moved) {
      printf("%s absent: this allocator gives another block\n", event->name);
      block_has_moved = cached.valid = 0;
      return;
    }
    memset(memory, after, kBytes);
    if (hears) foreign = foreign && sent_by_foreign(memory) == after;
    const int last = domain && !refused ? sent_by_pinion(memory) : after;
    refused = refused || last == kRefused;
    ours = ours && (refused || last == after);
    cached.valid = 0;
  }
  printf("%s %s %s\n", event->name, hears ? word(foreign, 1) : "-", domain && !refused ? word(ours, 1) : "-");
  fflush(stdout);
}

static void leave(void) {
  hooker->unload();
  hears = is_here = 0;
}

int main(int argc, char** argv) {
  if (argc < 5) return fputs("usage: hooked HOOKER ORDER with|without EVENT...\n", stderr), 2;
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* blocks of the heap, which go by brk */
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
  hooker = find_hooker(argv[1]);
  const char* const order = argv[2];
  const int with = strcmp(argv[3], "with") == 0, later = strcmp(order, "later") == 0;
  const int unloaded = strcmp(order, "unloaded") == 0;
  if (unloaded && !hooker->unload) absent("it cannot be unloaded");
  if (strcmp(order, "before") != 0 && hooker->only_before) absent("it is there from the start");
  open_device();
  if (strcmp(order, "before") == 0) come();
  if (with) start_pinion();
  if (strcmp(order, "after") == 0 || unloaded) come();
  if (unloaded) {
    run(&kEvents[0], NULL); /* its hooks and ours are both in use before */
    leave();
  }
  for (int i = 4; i < argc; ++i) {
    for (size_t k = 0; k < sizeof kEvents / sizeof *kEvents; ++k) {
      if (strcmp(argv[i], kEvents[k].name) != 0) continue;
      if (kEvents[k].go == go_mremap_to && hooker->loses_destination) {
        printf("%s absent: its mremap passes four arguments on\n", argv[i]);
        continue;
      }
      run(&kEvents[k], later && !is_here ? come : NULL);
    }
  }
  if (domain && (pinion_domain_close(domain) || pinion_stop())) broken(pinion_last_error());
  return 0;
}
