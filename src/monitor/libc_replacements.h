// The replacements of libc's functions by name: the targets of the patches, and of the symbols of the
// preloaded libpinion-symbols.so (intercept/symbols.cpp). They may be called at any time, also before any
// constructor has run and while monitors are stopped; then they act as libc's functions. Any thread, any
// signal handler.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace pinion {

/// The order stays for ever: libpinion-symbols.so may meet the libpinion of another build, and has to work
/// before versions can be compared. New members come last.
struct LibcReplacements {
  long (*syscall)(long, ...);  ///< the first: symbols.cpp reads it in assembly
  int (*munmap)(void*, std::size_t);
  void* (*mmap)(void*, std::size_t, int, int, int, off_t);
  void* (*mremap)(void*, std::size_t, std::size_t, int, ...);
  int (*madvise)(void*, std::size_t, int);
  int (*brk)(void*);
  void* (*sbrk)(std::intptr_t);
  void* (*shmat)(int, const void*, int);
  int (*shmdt)(const void*);
  int (*mprotect)(void*, std::size_t, int);
  int (*pkey_mprotect)(void*, std::size_t, int, int);
  int (*remap_file_pages)(void*, std::size_t, int, std::size_t, int);
  ssize_t (*process_madvise)(int, const void*, std::size_t, int, unsigned);
  int (*ftruncate)(int, off_t);
  int (*truncate)(const char*, off_t);
  int (*fallocate)(int, int, off_t, off_t);
};
extern const LibcReplacements libc_replacements;

/// Has calls that come by symbols go on to the definitions that they would have reached without ours: another
/// preloaded library's, or libc's own, which others may have redirected. Ordinary code, for the preloaded
/// library's constructor; before it they go to the kernel.
void chain_behind_symbols(void* (*definition)(const char*));

}  // namespace pinion
