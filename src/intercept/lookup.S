// dlsym and dlvsym of functions of libibverbs and of the CUDA driver (lookup.cpp). What lookup.cpp leaves goes on
// to the C library as it came, by a jump: RTLD_NEXT and RTLD_DEFAULT depend on the caller.
//
//   pinion_asked_dlsym: dlsym(library, name), where the name begins with i or cu (mpi/lookup.S)
//   dlvsym: all of them; others go on before anything is called, as an allocator may ask for calloc
  .text
  .globl dlvsym
  .globl pinion_asked_dlsym
  .hidden pinion_asked_dlsym
#if defined(__x86_64__)
  // Calls \function(library, name, version, caller) with the caller's arguments kept on the stack.
  .macro ask function
  movq (%rsp), %rcx
  pushq %rdi
  pushq %rsi
  pushq %rdx
  .cfi_adjust_cfa_offset 24
  call \function
  .endm
  .macro restore_arguments
  popq %r8
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -24
  .endm

  .type pinion_asked_dlsym, @function
  .p2align 4
pinion_asked_dlsym:
  .cfi_startproc
  xorl %edx, %edx
  ask pinion_lookup
  restore_arguments
  testq %rdx, %rdx
  je pinion_dlsym_goes_on
  ret
  .cfi_endproc
  .size pinion_asked_dlsym, . - pinion_asked_dlsym

  .type dlvsym, @function
  .p2align 4
dlvsym:
  .cfi_startproc
  endbr64
  cmpb $'i', (%rsi)
  je 3f
  cmpb $'c', (%rsi)
  jne 1f
  cmpb $'u', 1(%rsi)
  jne 1f
3:
  ask pinion_lookup
  restore_arguments
  testq %rdx, %rdx
  movq %r8, %rdx
  je 1f
  ret
1:
  movq pinion_real_dlvsym(%rip), %rax
  testq %rax, %rax
  je 2f
  jmp *%rax
2:
  ask pinion_find_dlvsym
  restore_arguments
  movq %r8, %rdx
  jmp *%rax
  .cfi_endproc
#else
  .macro ask function
  mov x3, x30
  stp x29, x30, [sp, #-48]!
  .cfi_def_cfa_offset 48
  .cfi_offset x29, -48
  .cfi_offset x30, -40
  stp x0, x1, [sp, #16]
  str x2, [sp, #32]
  bl \function
  mov x16, x0
  mov x17, x1
  .endm
  .macro restore_arguments
  ldp x0, x1, [sp, #16]
  ldr x2, [sp, #32]
  ldp x29, x30, [sp], #48
  .cfi_restore x29
  .cfi_restore x30
  .cfi_def_cfa_offset 0
  .endm

  .type pinion_asked_dlsym, %function
  .p2align 4
pinion_asked_dlsym:
  .cfi_startproc
  mov x2, xzr
  ask pinion_lookup
  restore_arguments
  cbz x17, pinion_dlsym_goes_on
  mov x0, x16
  ret
  .cfi_endproc
  .size pinion_asked_dlsym, . - pinion_asked_dlsym

  .type dlvsym, %function
  .p2align 4
dlvsym:
  .cfi_startproc
  ldrb w16, [x1]
  cmp w16, #'i'
  b.eq 3f
  cmp w16, #'c'
  b.ne 1f
  ldrb w16, [x1, #1]
  cmp w16, #'u'
  b.ne 1f
3:
  ask pinion_lookup
  restore_arguments
  cbz x17, 1f
  mov x0, x16
  ret
1:
  adrp x16, pinion_real_dlvsym
  ldr x16, [x16, :lo12:pinion_real_dlvsym]
  cbz x16, 2f
  br x16
2:
  ask pinion_find_dlvsym
  restore_arguments
  br x16
  .cfi_endproc
#endif
  .size dlvsym, . - dlvsym
  .section .note.GNU-stack, "", %progbits
