// dlsym: programs that load MPI for themselves and look its functions up in it (Julia, ctypes) would go past the preload.
// Names that may be MPI's go to lookup.cpp; all else goes on as it came, since what RTLD_NEXT and RTLD_DEFAULT mean
// depends on the caller.
  .text
  .globl dlsym
  .globl pinion_dlsym_goes_on
  .hidden pinion_dlsym_goes_on
#if defined(__x86_64__)
  .type dlsym, @function
  .p2align 4
dlsym:
  .cfi_startproc
  endbr64
#ifdef PINION_VERBS_FRONT
  cmpb $'i', (%rsi)
  je pinion_verbs_dlsym
#endif
  leaq 1(%rdi), %rax  // RTLD_NEXT is -1, RTLD_DEFAULT 0
  cmpq $1, %rax
  jbe 1f
  cmpb $'M', (%rsi)
  je pinion_mpi_lookup
  cmpb $'P', (%rsi)
  je pinion_mpi_lookup
1:
pinion_dlsym_goes_on:
  movq pinion_real_dlsym(%rip), %rax
  testq %rax, %rax
  je 2f
  jmp *%rax
2:
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  .cfi_adjust_cfa_offset 24
  call pinion_find_dlsym
  addq $8, %rsp
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -24
  jmp *%rax
  .cfi_endproc
#else
  .type dlsym, %function
  .p2align 4
dlsym:
  .cfi_startproc
#ifdef PINION_VERBS_FRONT
  ldrb w16, [x1]
  cmp w16, #'i'
  b.eq pinion_verbs_dlsym
#endif
  add x16, x0, #1
  cmp x16, #1
  b.ls 1f
  ldrb w16, [x1]
  cmp w16, #'M'
  b.eq pinion_mpi_lookup
  cmp w16, #'P'
  b.eq pinion_mpi_lookup
1:
pinion_dlsym_goes_on:
  adrp x16, pinion_real_dlsym
  ldr x16, [x16, :lo12:pinion_real_dlsym]
  cbz x16, 2f
  br x16
2:
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  stp x0, x1, [sp, #16]
  bl pinion_find_dlsym
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  br x16
  .cfi_endproc
#endif
  .size dlsym, . - dlsym
  .section .note.GNU-stack, "", %progbits
