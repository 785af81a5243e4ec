/* A preloaded library that has the names of libc's functions and passes them on by RTLD_NEXT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

void (*preload_heard)(const void*, size_t);

static void hear(const void* address, size_t bytes) {
  if (preload_heard) preload_heard(address, bytes);
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int munmap(void* a, size_t n) {
  hear(a, n);
  return NEXT(munmap)(a, n);
}
void* mmap(void* a, size_t n, int prot, int flags, int fd, off_t off) {
  if (flags & MAP_FIXED) hear(a, n);
  return NEXT(mmap)(a, n, prot, flags, fd, off);
}
void* mremap(void* a, size_t old, size_t n, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* const to = va_arg(rest, void*);
  va_end(rest);
  hear(a, old);
  if (flags & MREMAP_FIXED) hear(to, n);
  return NEXT(mremap)(a, old, n, flags, to);
}
int madvise(void* a, size_t n, int advice) {
  if (advice == MADV_DONTNEED || advice == MADV_FREE) hear(a, n);
  return NEXT(madvise)(a, n, advice);
}
int brk(void* to) {
  char* const now = NEXT(sbrk)(0);
  if ((char*)to < now) hear(to, (size_t)(now - (char*)to));
  return NEXT(brk)(to);
}
void* sbrk(intptr_t by) {
  char* const now = NEXT(sbrk)(0);
  if (by < 0) hear(now + by, (size_t)-by);
  return NEXT(sbrk)(by);
}
void* shmat(int id, const void* a, int flags) {
  if (flags & SHM_REMAP) hear(a, 1);
  return NEXT(shmat)(id, a, flags);
}
int shmdt(const void* a) {
  hear(a, 1);
  return NEXT(shmdt)(a);
}
