// Runs a part of a test in a child process. One thread at a time; the child has only the thread that forks.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "support/sanitizers.h"

#if defined(__SANITIZE_THREAD__)
/// A child may begin threads where earlier tests of the process had some.
extern "C" [[gnu::used]] inline const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace pinion::test {

/// Runs `f` in a child process; failures there make the parent's test fail. Another thread may have a lock of
/// a sanitizer's allocator at the fork, for which the child then waits for good: such a child ends, and the
/// next one is tried.
template <class F>
void in_child(F&& f) {
  for (int tries = kSanitized ? 3 : 1; tries > 0; --tries) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (kSanitized) ::alarm(20);
      f();
      std::fflush(nullptr);
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (tries > 1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child failed, status " << status;
    return;
  }
}

}  // namespace pinion::test
