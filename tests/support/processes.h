// Several processes of a test, forked from one that has no thread but its own. One thread at a time.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

namespace pinion::test {

class Processes {
 public:
  /// Runs `f(rank)` in `count` children; failures there are theirs to report at wait().
  Processes(unsigned count, const std::function<void(unsigned)>& f) {
    std::fflush(nullptr);
    for (unsigned rank = 0; rank < count; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        f(rank);
        std::fflush(nullptr);
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
      }
      children_.push_back(child);
    }
  }
  ~Processes() { wait(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Exit status of a process on a machine that lacks a part.
  static constexpr int kSkipped = 77;
  bool skipped() {
    wait();
    return skipped_;
  }
  /// A process ends here by a signal, and that is no failure.
  void expect_killed(unsigned rank) { killed_ = static_cast<int>(rank); }
  void wait() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      int status = 0;
      EXPECT_EQ(::waitpid(children_[rank], &status, 0), children_[rank]);
      remove_shared_memory(children_[rank]);
      if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped)
        skipped_ = true;
      else if (static_cast<int>(rank) == killed_)
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
      else
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
            << "process " << rank << " failed, status " << status;
    }
    children_.clear();
  }

 private:
  /// Remains of a killed process in libfabric's shm: a later one with the same number could not open it.
  static void remove_shared_memory(pid_t process) {
    const std::string prefix = std::to_string(process) + ":";
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored))
      if (file.path().filename().string().starts_with(prefix)) std::filesystem::remove(file.path(), ignored);
  }

  std::vector<pid_t> children_;
  int killed_ = -1;
  bool skipped_ = false;
};

}  // namespace pinion::test
