// libpinion-symbols.so: the functions by which memory changes, as symbols in front of libc's. Each leads into
// the replacement that a patched libc would lead into (monitor/libc_hooks.h). For machines that let no code
// be patched; it is preloaded by `pinion run --monitor symbols`. libc's own calls never come by here.
//
// Owns nothing. May be called before this library's constructor, by those of other libraries.
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdarg>

#include "intercept/exports.h"
#include "monitor/libc_replacements.h"

using pinion::libc_replacements;

namespace {
[[gnu::constructor]] void start() { pinion::chain_libc_behind_symbols(); }
}  // namespace

extern "C" {

PINION_EXPORT int munmap(void* address, std::size_t length) noexcept {
  return libc_replacements.munmap(address, length);
}

PINION_EXPORT void* mmap(void* address, std::size_t length, int protection, int flags, int fd,
                         off_t offset) noexcept {
  return libc_replacements.mmap(address, length, protection, flags, fd, offset);
}
PINION_EXPORT void* mmap64(void* address, std::size_t length, int protection, int flags, int fd,
                           off64_t offset) noexcept {
  return libc_replacements.mmap(address, length, protection, flags, fd, offset);
}

PINION_EXPORT void* mremap(void* address, std::size_t old_size, std::size_t new_size, int flags,
                           ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* const new_address = va_arg(rest, void*);  // passed on as it is; read only where the flags say so
  va_end(rest);
  return libc_replacements.mremap(address, old_size, new_size, flags, new_address);
}

PINION_EXPORT int madvise(void* address, std::size_t length, int advice) noexcept {
  return libc_replacements.madvise(address, length, advice);
}

PINION_EXPORT int brk(void* address) noexcept { return libc_replacements.brk(address); }
PINION_EXPORT void* sbrk(std::intptr_t increment) noexcept { return libc_replacements.sbrk(increment); }

PINION_EXPORT void* shmat(int id, const void* address, int flags) noexcept {
  return libc_replacements.shmat(id, address, flags);
}
PINION_EXPORT int shmdt(const void* address) noexcept { return libc_replacements.shmdt(address); }

PINION_EXPORT int mprotect(void* address, std::size_t length, int protection) noexcept {
  return libc_replacements.mprotect(address, length, protection);
}
PINION_EXPORT int pkey_mprotect(void* address, std::size_t length, int protection, int key) noexcept {
  return libc_replacements.pkey_mprotect(address, length, protection, key);
}

PINION_EXPORT int remap_file_pages(void* address, std::size_t length, int protection, std::size_t page,
                                   int flags) noexcept {
  return libc_replacements.remap_file_pages(address, length, protection, page, flags);
}

PINION_EXPORT ssize_t process_madvise(int process, const iovec* vectors, std::size_t count, int advice,
                                      unsigned flags) noexcept {
  return libc_replacements.process_madvise(process, vectors, count, advice, flags);
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
  movq _ZN6pinion17libc_replacementsE@GOTPCREL(%rip), %r11
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
  adrp x16, :got:_ZN6pinion17libc_replacementsE
  ldr x16, [x16, :got_lo12:_ZN6pinion17libc_replacementsE]
  ldr x16, [x16]
  br x16
  .cfi_endproc
  .size syscall, . - syscall
)");
#endif
