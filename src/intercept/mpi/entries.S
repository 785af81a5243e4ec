// The entries that the program calls: a jump each through pinion_mpi_entries (entries.h), so that the wrapper
// behind it finds registers and stack as the program left them. r11 (x17) tells the first call which entry it
// came by.
#if defined(__x86_64__)
.macro entry name, index
  .globl \name
  .type \name, @function
  .p2align 4
\name:
.Lentry_\index:
  .cfi_startproc
  endbr64
  leaq pinion_mpi_entries + 8 * \index(%rip), %r11
  jmp *(%r11)
  .cfi_endproc
  .size \name, . - \name
.endm
#elif defined(__aarch64__)
.macro entry name, index
  .globl \name
  .type \name, %function
  .p2align 4
\name:
.Lentry_\index:
  .cfi_startproc
  adrp x17, pinion_mpi_entries + 8 * \index
  add x17, x17, :lo12:(pinion_mpi_entries + 8 * \index)
  ldr x16, [x17]
  br x16
  .cfi_endproc
  .size \name, . - \name
.endm
#else
#error "no entries for this processor"
#endif

  .text
  .p2align 4
  .globl pinion_mpi_first_entry
  .hidden pinion_mpi_first_entry
pinion_mpi_first_entry:
#include "entry_list.inc"

// The resolver of each name in a program that came without MPI (visible_names.h).
  .p2align 4
  .globl pinion_mpi_resolvers
  .hidden pinion_mpi_resolvers
pinion_mpi_resolvers:
  .set at, 0
  .rept PINION_MPI_ENTRIES
  .p2align 4
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  movl $at, %edi
  jmp pinion_mpi_resolve
#else
  mov x0, at
  b pinion_mpi_resolve
#endif
  .cfi_endproc
  .set at, at + 1
  .endr

// Resolved once, when the preload is relocated: the names of all fronts are written then.
  .type pinion_names_written, @gnu_indirect_function
pinion_names_written:
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  jmp pinion_write_names
#else
  b pinion_write_names
#endif
  .cfi_endproc

// The first call of all: recognises the MPI, which fills the entries, and goes on to where the entry leads then.
  .hidden pinion_mpi_first_call
  .p2align 4
pinion_mpi_first_call:
  .cfi_startproc
#if defined(__x86_64__)
  pushq %rax
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %r11
  subq $136, %rsp
  .cfi_adjust_cfa_offset 200
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq 200(%rsp), %rdi
  call pinion_mpi_recognise
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $136, %rsp
  popq %r11
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  .cfi_adjust_cfa_offset -200
  jmp *(%r11)
#else
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  stp x8, x17, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x30
  bl pinion_mpi_recognise
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldp x8, x17, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  ldr x16, [x17]
  br x16
#endif
  .cfi_endproc

// A name that no library behind the preload defines.
  .globl pinion_mpi_undefined_entry
  .hidden pinion_mpi_undefined_entry
pinion_mpi_undefined_entry:
  .cfi_startproc
#if defined(__x86_64__)
  endbr64
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movq %r11, %rdi
  call pinion_mpi_undefined
#else
  mov x0, x17
  bl pinion_mpi_undefined
#endif
  .cfi_endproc

  .section .data.rel.local, "aw"
  .p2align 6
  .globl pinion_mpi_entries
  .hidden pinion_mpi_entries
pinion_mpi_entries:
  .rept PINION_MPI_ENTRIES
  .quad pinion_mpi_first_call
  .endr

  .quad pinion_names_written

// The names themselves: ours, whoever stands before them (lookup.cpp).
  .p2align 6
  .globl pinion_mpi_names
  .hidden pinion_mpi_names
pinion_mpi_names:
  .altmacro
  .macro name_of index
  .quad .Lentry_\index
  .endm
  .set at, 0
  .rept PINION_MPI_ENTRIES
  name_of %at
  .set at, at + 1
  .endr
  .noaltmacro

  .section .note.GNU-stack, "", %progbits
