#include "monitor/sandbox.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "support/system_call_filter.h"

namespace pinion {
namespace {

/// From then on a process that opens a file is ended.
bool close_sandbox() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  return test::filter_system_calls(program);
}

/// The status of a child that ends with the function's result.
template <typename Function>
int status_of_child(Function function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function());
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

enum Result { kAsExpected, kUnexpected, kNoFilters };

TEST(Sandbox, AChildThatIsForkedBehindOneOpensNoFileAndKnows) {
  note_filters();
  EXPECT_FALSE(has_new_filter());
  const int status = status_of_child([] {
    if (has_new_filter()) return kUnexpected;
    if (!close_sandbox()) return kNoFilters;
    if (!has_new_filter()) return kUnexpected;
    const int inner = status_of_child([] { return has_new_filter() ? kAsExpected : kUnexpected; });
    return WIFEXITED(inner) && WEXITSTATUS(inner) == kAsExpected ? kAsExpected : kUnexpected;
  });
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "no filters of system calls";
  EXPECT_EQ(WEXITSTATUS(status), kAsExpected);
  EXPECT_FALSE(has_new_filter());
}

// In malloc, with the lock of libc's heap.
TEST(Sandbox, AThreadThatIsBeingCancelledAsks) {
  note_filters();
  std::atomic<bool> has_answer{false};
  const auto ask = [](void* answer) -> void* {
    ::pthread_cancel(::pthread_self());
    static_cast<std::atomic<bool>*>(answer)->store(!has_new_filter());
    ::pthread_testcancel();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(::pthread_create(&thread, nullptr, ask, &has_answer), 0);
  ::pthread_join(thread, nullptr);
  EXPECT_TRUE(has_answer);
  EXPECT_FALSE(has_new_filter());
}

}  // namespace
}  // namespace pinion
