// A process that is refused userfaultfd, as in containers.
#pragma once

#include "system_call_filter.h"

namespace pinion::test {

/// For the rest of this process's life, and for its children: the system call, and the device by its ioctl.
/// False where the kernel lacks such filters.
inline bool refuse_userfaultfd() {
  constexpr std::uint32_t kIoctlType = 0xaa00;  // USERFAULTFD_IOC_NEW
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kIoctlType, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  return filter_system_calls(program);
}

}  // namespace pinion::test
