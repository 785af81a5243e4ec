#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hooked.h"

static void* load_library(const char* name) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) absent(dlerror());
  return library;
}

/* ---- UCX: HOOKED_UCX is the folder of its libraries, else the system's ---- */

union ucx_event {
  struct {
    void* address;
    size_t size;
  } vm_unmapped;
};
enum { kVmUnmapped = 1 << 17 };
static void *ucs, *ucm;
static void ucx_heard(int type, union ucx_event* event, void* context) {
  (void)type, (void)context;
  heard(event->vm_unmapped.address, event->vm_unmapped.size);
}
static int load_ucx(void) {
  const char* const folder = getenv("HOOKED_UCX");
  char path[4096];
  snprintf(path, sizeof path, "%s%slibucs.so.0", folder ? folder : "", folder ? "/" : "");
  ucs = load_library(path);
  snprintf(path, sizeof path, "%s%slibucm.so.0", folder ? folder : "", folder ? "/" : "");
  ucm = load_library(path);
  int (*const listen)(int, int, void (*)(int, union ucx_event*, void*), void*) =
      dlsym(ucm, "ucm_set_event_handler");
  if (!listen || listen(kVmUnmapped, 1000, ucx_heard, NULL)) absent("UCX cannot hook here");
  return 1;
}
static void unload_ucx(void) {
  void (*const forget)(int, void (*)(int, union ucx_event*, void*), void*) =
      dlsym(ucm, "ucm_unset_event_handler");
  forget(kVmUnmapped, ucx_heard, NULL);
  dlclose(ucm);
  dlclose(ucs);
}

/* ---- Open MPI's patcher ---- */

static void* mpi;
static void open_mpi_heard(void* address, size_t bytes, void* context, bool from_alloc) {
  (void)context, (void)from_alloc;
  heard(address, bytes);
}
static int load_open_mpi(void) {
  static const char* const kSettings[][2] = {{"OMPI_MCA_mpi_leave_pinned", "1"},
                                             {"OMPI_MCA_pml", "ob1"},
                                             {"OMPI_MCA_btl", "self"},
                                             {"OMPI_MCA_ess_singleton_isolated", "1"},
                                             {"OMPI_MCA_orte_create_session_dirs", "0"},
                                             {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  for (size_t i = 0; i < sizeof kSettings / sizeof *kSettings; ++i)
    setenv(kSettings[i][0], kSettings[i][1], 1);
  mpi = load_library("libmpi.so.40");
  int (*const init)(int*, char***) = dlsym(mpi, "MPI_Init");
  if (init(NULL, NULL)) absent("Open MPI does not start");
  void* const portable = load_library("libopen-pal.so.40");
  int (*const open)(void*, int) = dlsym(portable, "mca_base_framework_open");
  int (*const level)(void) = dlsym(portable, "opal_mem_hooks_support_level");
  int (*const listen)(void (*)(void*, size_t, void*, bool), void*) =
      dlsym(portable, "opal_mem_hooks_register_release");
  if (open(dlsym(portable, "opal_memory_base_framework"), 0) || !level() || listen(open_mpi_heard, NULL))
    absent("Open MPI cannot hook here");
  return 1;
}
static void unload_open_mpi(void) {
  int (*const finalize)(void) = dlsym(mpi, "MPI_Finalize");
  finalize();
  dlclose(mpi);
}

/* ---- patcher.c, a library that is really unloaded: HOOKED_PATCHER is its file ---- */

enum { kAll = 0, kBrkAlone = 6 }; /* the first of its patches */
static void* patcher;
static int load_patches(int first) {
#if !defined(__x86_64__)
  absent("its patches are of x86-64");
#endif
  patcher = load_library(getenv("HOOKED_PATCHER"));
  int (*const patch_from)(int, void (*)(const void*, size_t)) = dlsym(patcher, "patch_from");
  if (patch_from(first, heard)) absent("code cannot be patched here");
  return 1;
}
static void unload_patches(int first) {
  void (*const unpatch_from)(int) = dlsym(patcher, "unpatch_from");
  unpatch_from(first);
  dlclose(patcher);
}
static int load_patcher(void) { return load_patches(kAll); }
static void unload_patcher(void) { unload_patches(kAll); }
static int load_brk_patcher(void) { return load_patches(kBrkAlone); }
static void unload_brk_patcher(void) { unload_patches(kBrkAlone); }

/* ---- a preloaded library with the functions' names (preload.c) ---- */

static int load_preload(void) {
  void (** const report)(const void*, size_t) = dlsym(RTLD_DEFAULT, "preload_heard");
  if (!report) absent("it is not preloaded");
  *report = heard;
  return 1;
}

/* ---- userfaultfd ---- */

static int faults = -1;
static void* read_faults(void* unused) {
  struct uffd_msg message;
  while (read(faults, &message, sizeof message) == sizeof message) {
    if (message.event == UFFD_EVENT_REMAP) {
      heard((void*)message.arg.remap.from, message.arg.remap.len);
    } else if (message.event == UFFD_EVENT_REMOVE || message.event == UFFD_EVENT_UNMAP) {
      heard((void*)message.arg.remove.start, message.arg.remove.end - message.arg.remove.start);
    } else if (message.event == UFFD_EVENT_PAGEFAULT) {
      struct uffdio_zeropage zero = {.range = {message.arg.pagefault.address & ~4095ULL, 4096}};
      ioctl(faults, UFFDIO_ZEROPAGE, &zero);
    }
  }
  return unused;
}
static int load_userfaultfd(void) {
  struct uffdio_api api = {
      .api = UFFD_API,
      .features = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP};
  faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  if (faults < 0 || ioctl(faults, UFFDIO_API, &api)) absent("no userfaultfd with events here");
  pthread_t reader;
  pthread_create(&reader, NULL, read_faults, NULL);
  pthread_detach(reader);
  return 1;
}
static void watch_by_userfaultfd(void* memory, size_t bytes) {
  struct uffdio_register range = {.range = {(uintptr_t)memory, bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (faults >= 0) ioctl(faults, UFFDIO_REGISTER, &range);
}
/* Events are read in their order: when the last has been, those before it have been noted. */
static char* last_event;
static void settle_userfaultfd(void) {
  if (faults < 0) return;
  if (!last_event) {
    last_event = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    watch_by_userfaultfd(last_event, 4096);
  }
  madvise(last_event, 4096, MADV_DONTNEED);
}
static void unload_userfaultfd(void) {
  close(faults); /* its reader ends with the process */
  faults = -1;
}

/* ---- gperftools, whose own hooks report ---- */

static void tcmalloc_munmap(const void* a, size_t n) { heard(a, n); }
static void tcmalloc_mremap(const void* r, const void* a, size_t old, size_t n, int flags, const void* to) {
  (void)r, (void)to, (void)flags, (void)n;
  heard(a, old);
}
static int load_tcmalloc(void) {
  int (*const add_munmap)(void (*)(const void*, size_t)) = dlsym(RTLD_DEFAULT, "MallocHook_AddMunmapHook");
  int (*const add_mremap)(void (*)(const void*, const void*, size_t, size_t, int, const void*)) =
      dlsym(RTLD_DEFAULT, "MallocHook_AddMremapHook");
  if (!add_munmap || !add_munmap(tcmalloc_munmap) || !add_mremap(tcmalloc_mremap)) return 0;
  return 1;
}

static int load_nothing(void) { return 0; }

static const struct hooker kHookers[] = {
    {.name = "ucx", .load = load_ucx, .unload = unload_ucx, .loses_destination = 1},
    {.name = "openmpi", .load = load_open_mpi, .unload = unload_open_mpi},
    {.name = "patcher", .load = load_patcher, .unload = unload_patcher},
    {.name = "brk-patcher", .load = load_brk_patcher, .unload = unload_brk_patcher},
    {.name = "preload", .load = load_preload, .only_before = 1},
    {.name = "userfaultfd",
     .load = load_userfaultfd,
     .unload = unload_userfaultfd,
     .watch = watch_by_userfaultfd,
     .settle = settle_userfaultfd},
    {.name = "tcmalloc", .load = load_tcmalloc, .only_before = 1},
    {.name = "jemalloc", .load = load_nothing, .only_before = 1},
    {.name = "mimalloc", .load = load_nothing, .only_before = 1},
    {.name = "none", .load = load_nothing, .only_before = 1},
};

const struct hooker* find_hooker(const char* name) {
  for (size_t i = 0; i < sizeof kHookers / sizeof *kHookers; ++i)
    if (strcmp(kHookers[i].name, name) == 0) return &kHookers[i];
  fprintf(stderr, "unknown hooker: %s\n", name);
  exit(2);
}
