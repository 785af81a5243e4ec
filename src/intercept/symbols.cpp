// libpinion-symbols.so: the functions by which memory changes, as symbols in front of libc's. Each leads into
// the replacement that a patched libc would lead into (monitor/libc_hooks.h). For machines that let no code
// be patched; it is preloaded by `pinion run --monitor symbols`. libc's own calls never come by here.
//
// Owns one pointer: to the replacements of libpinion.so, until another copy of that code (linked into a
// command or a test) sets its own. May be called before this library's constructor, by those of others.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>

#include "intercept/exports.h"
#include "monitor/libc_replacements.h"

using pinion::LibcReplacements;

extern "C" {

[[gnu::visibility("hidden")]] constinit std::atomic<const LibcReplacements*> pinion_symbols_target{
    &pinion::libc_replacements};

/// Asked for by name (monitor/libc_hooks.cpp).
PINION_EXPORT void pinion_symbols_lead_to(const LibcReplacements* target) {
  pinion_symbols_target.store(target);
}

/// The definition behind this library's, in the order of loading. Asked for by name likewise.
PINION_EXPORT void* pinion_symbols_behind(const char* name) { return dlsym(RTLD_NEXT, name); }

}  // extern "C"

namespace {

[[gnu::constructor]] void start() { pinion::chain_behind_symbols(pinion_symbols_behind); }

const LibcReplacements& target() { return *pinion_symbols_target.load(std::memory_order_acquire); }

}  // namespace

extern "C" {

PINION_EXPORT int munmap(void* address, std::size_t length) noexcept {
  return target().munmap(address, length);
}

PINION_EXPORT void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
                         off_t offset) noexcept {
  return target().mmap(address, length, protection, flags, fd, offset);
}
PINION_EXPORT void* mmap64(void* address, std::size_t length, int protection, int flags, int fd,
                           off64_t offset) noexcept {
  return target().mmap(address, length, protection, flags, fd, offset);
}

PINION_EXPORT void* mremap(void* address, std::size_t old_size, std::size_t new_size, int flags,
                           ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const new_address = va_arg(rest, void*);  // passed on as it is; the flags decide whether it is read
  va_end(rest);
  return target().mremap(address, old_size, new_size, flags, new_address);
}

PINION_EXPORT int madvise(void* address, std::size_t length, int advice) noexcept {
  return target().madvise(address, length, advice);
}

PINION_EXPORT int brk(void* address) noexcept { return target().brk(address); }
PINION_EXPORT void* sbrk(std::intptr_t increment) noexcept { return target().sbrk(increment); }

PINION_EXPORT void* shmat(int id, const void* address, int flags) noexcept {
  return target().shmat(id, address, flags);
}
PINION_EXPORT int shmdt(const void* address) noexcept { return target().shmdt(address); }

PINION_EXPORT int mprotect(void* address, std::size_t length, int protection) noexcept {
  return target().mprotect(address, length, protection);
}
PINION_EXPORT int pkey_mprotect(void* address, std::size_t length, int protection, int key) noexcept {
  return target().pkey_mprotect(address, length, protection, key);
}

PINION_EXPORT int remap_file_pages(void* address, std::size_t length, int protection, std::size_t page,
                                   int flags) noexcept {
  return target().remap_file_pages(address, length, protection, page, flags);
}

PINION_EXPORT ssize_t process_madvise(int process, const iovec* vectors, std::size_t count, int advice,
                                      unsigned flags) noexcept {
  return target().process_madvise(process, vectors, count, advice, flags);
}

PINION_EXPORT int ftruncate(int fd, off_t length) noexcept { return target().ftruncate(fd, length); }
PINION_EXPORT int ftruncate64(int fd, off64_t length) noexcept { return target().ftruncate(fd, length); }
PINION_EXPORT int truncate(const char* path, off_t length) noexcept {
  return target().truncate(path, length);
}
PINION_EXPORT int truncate64(const char* path, off64_t length) noexcept {
  return target().truncate(path, length);
}
PINION_EXPORT int fallocate(int fd, int mode, off_t offset, off_t length) {
  return target().fallocate(fd, mode, offset, length);
}
PINION_EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  return target().fallocate(fd, mode, offset, length);
}

}  // extern "C"

// syscall() must not stand between its caller and the kernel with a frame (monitor/syscall_entry.h): a jump
// to the first of the replacements.
#if defined(__x86_64__)
asm(R"(
  .text
  .p2align 4
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  endbr64
  movq pinion_symbols_target(%rip), %r11
  jmp *(%r11)
  .cfi_endproc
  .size syscall, . - syscall
)");
#else
asm(R"(
  .text
  .p2align 4
  .globl syscall
  .type syscall, %function
syscall:
  .cfi_startproc
  hint #34
  adrp x16, pinion_symbols_target
  ldr x16, [x16, :lo12:pinion_symbols_target]
  ldr x16, [x16]
  br x16
  .cfi_endproc
  .size syscall, . - syscall
)");
#endif
