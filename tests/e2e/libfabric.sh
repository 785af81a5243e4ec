#!/usr/bin/env bash
# Pinion as the memory monitor of libfabric's registration cache: the real libfabric imports it at the right
# moment, and keeps another that the user or program has chosen. A cache that locks, allocates and queries as
# libfabric's does gets right answers under real memory events. (Every provider with such a cache needs an
# RDMA device: tests/softroce proves the contents of transfers on one.)
source "$(dirname "$0")/script.bash"
source=$(cd "$(dirname "$0")/../.." && pwd)
[ -e /usr/include/rdma/fi_ext.h ] || { echo "libfabric's headers are not installed"; exit 77; }

compile() {
  gcc -O1 -std=gnu11 -Wall -I"$source/include" "$work/$1.c" -o "$work/$1" "${@:2}" || exit 1
}
pinion=(-L"$build/lib" -lpinion -Wl,-rpath,"$build/lib")

# ---- the real library ----

cat >"$work/program.c" <<'END'
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int start(struct fid_mem_monitor* m) { return 0; }
static void stop(struct fid_mem_monitor* m) {}
static int subscribe(struct fid_mem_monitor* m, const void* a, size_t n) { return 0; }
static void unsubscribe(struct fid_mem_monitor* m, const void* a, size_t n) {}
static bool valid(struct fid_mem_monitor* m, const void* a, size_t n) { return true; }
static struct fi_ops_mem_monitor ops = {sizeof ops, start, stop, subscribe, unsubscribe, valid};
static struct fid_mem_monitor own = {.fid.fclass = FI_CLASS_MEM_MONITOR, .export_ops = &ops};

int main(int argc, char** argv) {
  struct fi_info *hints = fi_allocinfo(), *info;
  struct fid_fabric* fabric;
  hints->fabric_attr->prov_name = strdup("tcp");
  if (fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info)) return 2;
  if (argc > 1 && fi_import(FI_VERSION(1, 14), "mr_cache", NULL, 0, 0, &own.fid, NULL)) return 3;
  for (int i = 0; i < 2; ++i) {
    if (fi_fabric(info->fabric_attr, &fabric, NULL)) return 4;
    fi_close(&fabric->fid);
  }
  return 0;
}
END
compile program -lfabric

# imports EXPECTED WHAT COMMAND...: how many monitors libfabric is given, and that it does not complain.
imports() {
  local expected=$1 what=$2 count
  shift 2
  FI_LOG_LEVEL=info "$@" >"$work/log" 2>&1 || fail "$what: status $?: $(tail -n 3 "$work/log")"
  count=$(grep -c 'setting imported memory monitor' "$work/log")
  [ "$count" = "$expected" ] || fail "$what: $count monitors imported, expected $expected"
  ! grep -E 'imported monitor already|cannot replace' "$work/log" || fail "$what: libfabric complains"
}
run=("$build/bin/pinion" run)
imports 0 "without Pinion" "$work/program"
imports 1 "pinion run" "${run[@]}" -- "$work/program"
imports 0 "switched off" "${run[@]}" --tune feed-libfabric=no -- "$work/program"
imports 0 "Pinion off" env PINION=off "${run[@]}" -- "$work/program"
imports 0 "the user's choice" env FI_MR_CACHE_MONITOR=memhooks "${run[@]}" -- "$work/program"
imports 1 "the program's own monitor" "${run[@]}" -- "$work/program" own

# A plug-in provider has a cache of its own, which never starts the monitor that the library has taken.
doctor_says() { "$build/bin/pinion" doctor | tr -s ' \n' ' ' | grep -q "$1" || fail "doctor does not say: $1"; }
doctor_says 'libfabric: [0-9.]*: under `pinion run` its own registration cache has'
mkdir "$work/plugin"
cp "$(ldd "$work/program" | awk '$1 == "libfabric.so.1" {print $3}')" "$work/plugin/libfabric.so.1"
: >"$work/plugin/libverbs-1.12-fi.so"
LD_LIBRARY_PATH=$work/plugin doctor_says "provider $work/plugin/libverbs-1.12-fi.so is a plug-in"

cat >"$work/calls.c" <<'END'
#include <dlfcn.h>
#include <errno.h>
#include <pinion/pinion.h>
#include <rdma/fi_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fi_ops_mem_monitor ops = {sizeof ops};
static struct fid_mem_monitor other = {.fid.fclass = FI_CLASS_MEM_MONITOR, .export_ops = &ops};
typedef int (*open_function)(uint32_t, const char*, void*, size_t, uint64_t, struct fid**, void*);

#define EXPECT(call, error)                                                          \
  do {                                                                               \
    const int got = (call);                                                          \
    if (got != (error)) {                                                            \
      printf("%s is %d, not %s: %s\n", #call, got, #error, pinion_last_error());     \
      return 1;                                                                      \
    }                                                                                \
  } while (0)

int main(int argc, char** argv) {
  struct fid* cache;
  EXPECT(pinion_feed_libfabric(), ENOENT);
  void* library = dlopen("libfabric.so.1", RTLD_NOW);
  open_function open = (open_function)dlsym(library, "fi_open");
  if (open(FI_VERSION(1, 14), "mr_cache", NULL, 0, 0, &cache, NULL)) return 1;
  if (argc > 1) {
    if (fi_import_fid(cache, &other.fid, 0)) return 1;
    EXPECT(pinion_feed_libfabric(), EBUSY);
    return strstr(pinion_last_error(), "another library") == NULL;
  }
  setenv("FI_MR_CACHE_MONITOR", "userfaultfd", 1);
  EXPECT(pinion_feed_libfabric(), ECANCELED);
  unsetenv("FI_MR_CACHE_MONITOR");
  setenv("PINION", "off", 1);
  EXPECT(pinion_feed_libfabric(), ECANCELED);
  unsetenv("PINION");
  EXPECT(pinion_feed_libfabric(), 0);
  EXPECT(pinion_feed_libfabric(), 0);
  EXPECT(fi_import_fid(cache, &other.fid, 0), -EBUSY);
  EXPECT(pinion_start(NULL), 0);
  EXPECT(pinion_stop(), 0);
  dlclose(library); /* its notify may be called until the end */
  return 0;
}
END
compile calls "${pinion[@]}"
FI_LOG_LEVEL=error "$work/calls" || fail "pinion_feed_libfabric"
FI_LOG_LEVEL=error "$work/calls" other || fail "pinion_feed_libfabric beside another monitor"

# ---- a cache that does as libfabric's ----

cat >"$work/cache.c" <<'END'
/*
 * Stands for libfabric: one mutex for all, held in subscribe, valid and notify, and while allocating. Threads
 * register, unmap and map anew, allocate and free, each on memory of its own.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <rdma/fi_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kThreads = 4, kRounds = 3000, kEntries = 64, kBytes = 256 << 10 };

static pthread_mutex_t mm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fid_mem_monitor* monitor;
static char* entries[kEntries]; /* what is registered */
static long hits, stale, refused, notified;

static void notify(struct fid_mem_monitor* m, const void* address, size_t bytes) {
  pthread_mutex_lock(&mm_lock);
  free(malloc(1 << 20));
  for (int i = 0; i < kEntries; ++i) {
    if (entries[i] < (char*)address + bytes && (char*)address < entries[i] + kBytes) {
      entries[i] = NULL;
      ++notified;
    }
  }
  pthread_mutex_unlock(&mm_lock);
}

static struct fi_ops_mem_notify notify_ops = {sizeof notify_ops, notify};
static int bind_monitor(struct fid* cache, struct fid* fid, uint64_t flags) {
  monitor = (struct fid_mem_monitor*)fid;
  monitor->import_ops = &notify_ops;
  return 0;
}
static int close_cache(struct fid* cache) { return 0; }
static struct fi_ops cache_ops = {.size = sizeof cache_ops, .close = close_cache, .bind = bind_monitor};
static struct fid cache = {.ops = &cache_ops};

uint32_t fi_version(void) { return FI_VERSION(1, 17); }
int fi_open(uint32_t version, const char* name, void* attr, size_t size, uint64_t flags, struct fid** fid, void* c) {
  *fid = &cache;
  return 0;
}

static char** find(char* address) {
  int i = 0;
  while (i < kEntries && entries[i] != address) ++i;
  return i < kEntries ? &entries[i] : NULL;
}

/* Whether the memory is registered; registers it. */
static int search(char* memory) {
  pthread_mutex_lock(&mm_lock);
  char** entry = find(memory);
  const int hit = entry && monitor->export_ops->valid(monitor, memory, kBytes);
  if (entry && !hit) {
    *entry = NULL;
    ++refused;
  }
  pthread_mutex_unlock(&mm_lock);
  if (hit) return 1;
  pthread_mutex_lock(&mm_lock);
  free(malloc(1 << 20));
  entry = find(NULL);
  if (entry) {
    *entry = memory;
    monitor->export_ops->subscribe(monitor, memory, kBytes);
  }
  pthread_mutex_unlock(&mm_lock);
  return 0;
}

static void* work(void* arg) {
  char* memory = NULL;
  for (int round = 0; round < kRounds; ++round) {
    char* again = mmap(memory, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (search(again)) __atomic_add_fetch(&stale, 1, __ATOMIC_RELAXED);
    if (search(again)) __atomic_add_fetch(&hits, 1, __ATOMIC_RELAXED);
    munmap(again, kBytes);
    memory = again;
    if (round % 64 == 0) usleep(5000); /* the thread that notifies gets a turn */
  }
  return NULL;
}

int run_cache(void) {
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  if (pinion_feed_libfabric()) {
    printf("%s\n", pinion_last_error());
    return 1;
  }
  pthread_t threads[kThreads];
  monitor->export_ops->start(monitor);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  monitor->export_ops->stop(monitor);
  printf("stale %ld hits %ld refused %ld notified %ld\n", stale, hits, refused, notified);
  return stale != 0 || hits < kThreads * kRounds / 2 || refused + notified == 0;
}
END
cat >"$work/caller.c" <<'END'
int run_cache(void);
int main(void) { return run_cache(); }
END
gcc -O1 -std=gnu11 -Wall -shared -fPIC -I"$source/include" -Wl,-soname,libfabric.so.1 "$work/cache.c" \
  -o "$work/libfabric.so.1" "${pinion[@]}" -lpthread || exit 1
gcc "$work/caller.c" -o "$work/caller" "$work/libfabric.so.1" -Wl,-rpath,"$work" -Wl,-rpath,"$build/lib" || exit 1
timeout 120 "$work/caller" >"$work/out" || fail "a cache as libfabric's: status $?: $(cat "$work/out")"
cat "$work/out"

exit $((failures > 0))
