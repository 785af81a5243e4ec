#include "monitor/syscall_entry.h"

#include <cerrno>

#include "monitor/memory_calls.h"

/// Takes the kernel's refusals: sets errno.
extern "C" [[gnu::visibility("hidden"), gnu::used]] long pinion_syscall_refused(long error) {
  errno = static_cast<int>(-error);
  return -1;
}

static_assert(pinion::kMemoryCallNumbers == 512 && sizeof(pinion::pinion_memory_calls) == 512,
              "the assembly knows that");

#if defined(__x86_64__)

asm(R"(
  .text
  .p2align 4
  .globl pinion_syscall_entry
  .hidden pinion_syscall_entry
  .type pinion_syscall_entry, @function
pinion_syscall_entry:
  .cfi_startproc
  endbr64
  movl %edi, %eax
  cmpl $512, %eax
  jae 1f
  leaq pinion_memory_calls(%rip), %r11
  cmpb $0, (%r11, %rax)
  jne pinion_memory_system_call
1:
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  cmpq $-4095, %rax
  jae 2f
  ret
2:
  movq %rax, %rdi
  jmp pinion_syscall_refused
  .cfi_endproc
  .size pinion_syscall_entry, . - pinion_syscall_entry
)");

#else

asm(R"(
  .text
  .p2align 4
  .globl pinion_syscall_entry
  .hidden pinion_syscall_entry
  .type pinion_syscall_entry, %function
pinion_syscall_entry:
  .cfi_startproc
  hint #34
  cmp w0, #512
  b.hs 1f
  adrp x16, pinion_memory_calls
  add x16, x16, :lo12:pinion_memory_calls
  ldrb w16, [x16, w0, uxtw]
  cbnz w16, 2f
1:
  uxtw x8, w0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
  cmn x0, #4095
  b.cs 3f
  ret
2:
  b pinion_memory_system_call
3:
  b pinion_syscall_refused
  .cfi_endproc
  .size pinion_syscall_entry, . - pinion_syscall_entry
)");

#endif
