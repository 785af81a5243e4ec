/*
 * A library that patches libc's code, as libfabric's memhooks and Open MPI's patcher do: an absolute jump
 * over the entry, and a system call of its own. Loaded and unloaded by hookers.c.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

static long raw(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  if ((unsigned long)result <= -4096UL) return result;
  errno = (int)-result;
  return -1;
}
static void** libc_break;
static void (*report)(const void*, size_t);
static void hear(const void* address, size_t bytes) { report(address, bytes); }
static int their_munmap(void* a, size_t n) {
  hear(a, n);
  return (int)raw(SYS_munmap, (long)a, (long)n, 0, 0, 0, 0);
}
static void* their_mmap(void* a, size_t n, int prot, int flags, int fd, off_t off) {
  if (flags & MAP_FIXED) hear(a, n);
  return (void*)raw(SYS_mmap, (long)a, (long)n, prot, flags, fd, off);
}
static void* their_mremap(void* a, size_t old, size_t size, int flags, void* to) {
  hear(a, old);
  if (flags & MREMAP_FIXED) hear(to, size);
  return (void*)raw(SYS_mremap, (long)a, (long)old, (long)size, flags, (long)to, 0);
}
static int their_madvise(void* a, size_t n, int advice) {
  if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE) hear(a, n);
  return (int)raw(SYS_madvise, (long)a, (long)n, advice, 0, 0, 0);
}
static void* their_shmat(int id, const void* a, int flags) {
  if (flags & SHM_REMAP) hear(a, 1);
  return (void*)raw(SYS_shmat, id, (long)a, flags, 0, 0, 0);
}
static int their_shmdt(const void* a) {
  hear(a, 1);
  return (int)raw(SYS_shmdt, (long)a, 0, 0, 0, 0, 0);
}
static int their_brk(void* to) {
  char* const was = *libc_break;
  if ((char*)to < was) hear(to, (size_t)(was - (char*)to));
  *libc_break = (void*)raw(SYS_brk, (long)to, 0, 0, 0, 0, 0);
  if (*libc_break >= to) return 0;
  errno = ENOMEM;
  return -1;
}
static struct patch {
  const char* name;
  void* code;
  unsigned char before[13];
} patches[] = {{"munmap", their_munmap, {0}},   {"mmap", their_mmap, {0}},   {"mremap", their_mremap, {0}},
               {"madvise", their_madvise, {0}}, {"shmat", their_shmat, {0}}, {"shmdt", their_shmdt, {0}},
               {"brk", their_brk, {0}}};
enum { kPatches = sizeof patches / sizeof *patches };

/* Opens the function's pages, writes, closes them. */
static int write_code(unsigned char* code, const unsigned char* content) {
  const uintptr_t page = (uintptr_t)code & ~(uintptr_t)4095;
  if (mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
  memcpy(code, content, 13);
  return mprotect((void*)page, 8192, PROT_READ | PROT_EXEC);
}
static unsigned char* libc_code(const char* name) {
  return dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
}
int patch_from(int first, void (*heard)(const void*, size_t)) {
  report = heard;
  libc_break = (void**)libc_code("__curbrk");
  for (int i = first; i < kPatches; ++i) {
    unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
    memcpy(jump + 2, &patches[i].code, 8);
    unsigned char* const code = libc_code(patches[i].name);
    memcpy(patches[i].before, code, 13);
    if (write_code(code, jump)) return -1;
  }
  return 0;
}
void unpatch_from(int first) {
  for (int i = kPatches - 1; i >= first; --i) write_code(libc_code(patches[i].name), patches[i].before);
}
