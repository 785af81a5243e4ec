// Weak references to all names that the preload may show: null where nobody has them.
.macro entry name, index
  .weak \name
  .quad \name
.endm

  .data
  .p2align 3
  .globl weak_references
  .hidden weak_references
weak_references:
#include "entry_list.inc"
  .section .note.GNU-stack, "", %progbits
