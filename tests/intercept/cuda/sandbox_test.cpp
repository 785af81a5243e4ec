// A program that closes a sandbox once its driver runs, from outside (program.h): a system call that it makes
// no more ends the process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "intercept/cuda/program.h"
#include "support/system_call_filter.h"

namespace pinion::test {
namespace {

/// The calls that any program makes, and no other one, for all threads.
bool close_sandbox() {
  static constexpr unsigned kAllowed[] = {
      SYS_read,   SYS_write,    SYS_close,        SYS_fstat,        SYS_newfstatat,     SYS_lseek,
      SYS_mmap,   SYS_mprotect, SYS_munmap,       SYS_brk,          SYS_mremap,         SYS_madvise,
      SYS_exit,   SYS_futex,    SYS_exit_group,   SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,
      SYS_getpid, SYS_gettid,   SYS_clock_gettime};
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : kAllowed) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

class CudaSandbox : public CudaProgram {};

TEST_F(CudaSandbox, ThatIsClosedBeforeTheFirstLargeCopyHoldsPinion) {
  Memory memory(kBytes);
  // The made-up driver's thread of the stream is there.
  ASSERT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), 100, stream_), kSuccess);
  ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
  if (!close_sandbox()) GTEST_SKIP() << "no filters of system calls";
  for (int value = 1; value < 60; ++value) {
    memory.fill(value);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, memory.data(), kBytes), kSuccess);
    ASSERT_TRUE(device_holds(kBytes, value));
    memory.fill(0);
    ASSERT_EQ(cuMemcpyDtoHAsync_v2(memory.data(), device_, kBytes, stream_), kSuccess);
    ASSERT_TRUE(memory.holds(value));
  }
  EXPECT_FALSE(is_registered(memory.data()));
}

}  // namespace
}  // namespace pinion::test
