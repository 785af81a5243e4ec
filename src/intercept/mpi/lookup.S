// dlsym: programs that load MPI for themselves and look its functions up in it (Julia, ctypes) would go past the preload.
// Names that may be MPI's go to lookup.cpp; those that may be libibverbs' or the CUDA driver's to ../lookup.S.
// RTLD_NEXT and RTLD_DEFAULT go on as they came, since what they mean depends on the caller, except for functions
// that no library has.
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
  cmpb $'i', (%rsi)
  je pinion_asked_dlsym
  cmpb $'c', (%rsi)
  je 4f
  cmpb $'M', (%rsi)
  je 3f
  cmpb $'P', (%rsi)
  je 3f
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
4:
  cmpb $'u', 1(%rsi)
  je pinion_asked_dlsym
  jmp 1b
3:
  leaq 1(%rdi), %rax  // RTLD_NEXT is -1, RTLD_DEFAULT 0
  cmpq $1, %rax
  ja pinion_mpi_lookup
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  .cfi_adjust_cfa_offset 24
  movq %rsi, %rdi
  call pinion_mpi_lookup_fails
  addq $8, %rsp
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -24
  testb %al, %al
  je 1b
  xorl %eax, %eax
  ret
  .cfi_endproc
#else
  .type dlsym, %function
  .p2align 4
dlsym:
  .cfi_startproc
  ldrb w16, [x1]
  cmp w16, #'i'
  b.eq pinion_asked_dlsym
  cmp w16, #'c'
  b.eq 4f
  cmp w16, #'M'
  b.eq 3f
  cmp w16, #'P'
  b.eq 3f
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
4:
  ldrb w16, [x1, #1]
  cmp w16, #'u'
  b.eq pinion_asked_dlsym
  b 1b
3:
  add x16, x0, #1
  cmp x16, #1
  b.hi pinion_mpi_lookup
  stp x29, x30, [sp, #-32]!
  .cfi_def_cfa_offset 32
  .cfi_offset x29, -32
  .cfi_offset x30, -24
  stp x0, x1, [sp, #16]
  mov x0, x1
  bl pinion_mpi_lookup_fails
  mov w16, w0
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  tbz w16, #0, 1b
  mov x0, #0
  ret
  .cfi_endproc
#endif
  .size dlsym, . - dlsym
  .section .note.GNU-stack, "", %progbits
