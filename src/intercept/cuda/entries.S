// The driver's functions under their own names, for programs and libraries that are linked with libcuda: a
// jump each through pinion_cuda_entries, so that the wrapper behind it finds registers and stack as the
// program left them. Each leads to pinion_cuda_first_call until the library is there (reach.cpp).
  .set count, 0
#if defined(__x86_64__)
.macro entry name
  .globl \name
  .type \name, @function
  .p2align 4
\name:
  .cfi_startproc
  endbr64
  leaq pinion_cuda_entries + 8 * count(%rip), %r11
  jmp *(%r11)
  .cfi_endproc
  .size \name, . - \name
  .set count, count + 1
.endm
#elif defined(__aarch64__)
.macro entry name
  .globl \name
  .type \name, %function
  .p2align 4
\name:
  .cfi_startproc
  adrp x17, pinion_cuda_entries + 8 * count
  add x17, x17, :lo12:(pinion_cuda_entries + 8 * count)
  ldr x16, [x17]
  br x16
  .cfi_endproc
  .size \name, . - \name
  .set count, count + 1
.endm
#else
#error "no entries for this processor"
#endif

  .text
  .p2align 4
  .globl pinion_cuda_first_entry
  .hidden pinion_cuda_first_entry
pinion_cuda_first_entry:
#define CALL(symbol, ...) entry symbol ;
#include "intercept/cuda/calls.inc"

// The resolver of each name in a program that came without libcuda (visible_names.h).
  .p2align 4
  .globl pinion_cuda_resolvers
  .hidden pinion_cuda_resolvers
pinion_cuda_resolvers:
  .set at, 0
  .rept count
  .p2align 4
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  movl $at, %edi
  jmp pinion_cuda_resolve
#else
  mov x0, at
  b pinion_cuda_resolve
#endif
  .cfi_endproc
  .set at, at + 1
  .endr

// Asks where the call shall go, and goes there. All arguments of the driver are integers and pointers.
  .p2align 4
pinion_cuda_first_call:
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $8, %rsp
  .cfi_adjust_cfa_offset 56
  movq %r11, %rdi
  call pinion_cuda_bind
  movq %rax, %r11
  addq $8, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -56
  jmp *%r11
#else
  stp x29, x30, [sp, #-80]!
  .cfi_def_cfa_offset 80
  .cfi_offset x29, -80
  .cfi_offset x30, -72
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  mov x0, x17
  bl pinion_cuda_bind
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldp x29, x30, [sp], #80
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  br x16
#endif
  .cfi_endproc

  .section .data.rel.local, "aw"
  .p2align 6
  .globl pinion_cuda_entries
  .hidden pinion_cuda_entries
pinion_cuda_entries:
  .rept count
  .quad pinion_cuda_first_call
  .endr

  .section .note.GNU-stack, "", %progbits
