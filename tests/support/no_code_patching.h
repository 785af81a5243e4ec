// A process without the right to patch code, as under SELinux without execmod: a seccomp filter refuses
// memory that is writable and executable.
#pragma once

#include <sys/mman.h>

#include "system_call_filter.h"

namespace pinion::test {

/// For the rest of this process's life, and for its children. False where the kernel has no such filters.
inline bool refuse_code_patching() {
  constexpr std::uint32_t kBoth = PROT_WRITE | PROT_EXEC;
  constexpr std::uint32_t kProtection = offsetof(seccomp_data, args[2]);  // its low half: little-endian
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kProtection),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, kBoth),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kBoth, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
  };
  return filter_system_calls(program);
}

}  // namespace pinion::test
