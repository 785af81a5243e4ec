// Runs a part of a test in a child process. One thread at a time; the child has only the thread that forks.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace pinion::test {

/// Runs `f` in a child process; failures there make the parent's test fail.
template <class F>
void in_child(F&& f) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    f();
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child failed, status " << status;
}

}  // namespace pinion::test
