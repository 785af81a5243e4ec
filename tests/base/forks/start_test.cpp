// A fork while another thread starts Pinion, at each system call of the start: the thread stands there, and
// the child starts Pinion anew. start.c is the program; PINION_TEST_SCALE tries more of the calls.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace pinion {
namespace {

/// The program, with its second thread stopped before it begins.
class Program {
 public:
  Program() {
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
      ::execl(PINION_TEST_PROGRAM, PINION_TEST_PROGRAM, nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
    std::string line;
    for (char c = answer(); c != '\n' && c != 0; c = answer()) line += c;
    thread_ = std::atoi(line.c_str());
    traced_ = thread_ > 0 && ::ptrace(PTRACE_SEIZE, thread_, nullptr, PTRACE_O_TRACESYSGOOD) == 0 &&
              ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) == 0 && waits();
    error_ = errno;
  }
  ~Program() {
    if (traced_) ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    say('q');
    ::close(to_);
    ::close(from_);
    int status = 0;
    ::waitpid(process_, &status, 0);
    EXPECT_EQ(status, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool has_begun() const { return thread_ > 0; }
  bool is_traced() const { return traced_; }
  const char* error() const { return std::strerror(error_); }

  void say(char letter) { EXPECT_EQ(::write(to_, &letter, 1), 1); }
  char answer() {
    char letter = 0;
    return ::read(from_, &letter, 1) == 1 ? letter : '\0';
  }
  /// The answer to a fork. The thread may stand where it has a lock of the C library's, or loads a library
  /// (base/own_loading.h), for which the fork waits: then it goes on, stop by stop, until the fork has come.
  char answer_to_fork() {
    pollfd answered{from_, POLLIN, 0};
    for (int patience = 500; ::poll(&answered, 1, patience) == 0; patience = 1)
      if (traced_) step();
    return answer();
  }
  /// Lets the thread go on to its next stop before or after a system call. False: it has ended.
  bool step() {
    if (::ptrace(PTRACE_SYSCALL, thread_, nullptr, nullptr) != 0) return traced_ = false;
    return waits() || (traced_ = false);
  }

 private:
  bool waits() {
    int status = 0;
    return ::waitpid(thread_, &status, __WALL) == thread_ && WIFSTOPPED(status);
  }

  pid_t process_ = -1, thread_ = -1;
  int to_ = -1, from_ = -1, error_ = 0;
  bool traced_ = false;
};

TEST(StartAtFork, ChildrenStartWhereverTheirParentsThreadStands) {
  const char* const scale = std::getenv("PINION_TEST_SCALE");
  const int stride = scale != nullptr && std::atof(scale) > 1 ? 1 : 13;
  int forks = 0;
  for (int at = 1;; at += stride) {
    Program program;
    ASSERT_TRUE(program.has_begun());
    if (!program.is_traced()) GTEST_SKIP() << "threads may not be traced here: " << program.error();
    program.say('g');
    int steps = 0;
    while (steps < at && program.step()) ++steps;
    if (steps < at) break;
    program.say('f');
    EXPECT_EQ(program.answer_to_fork(), 's') << "h: the child hung; e: it was refused; at stop " << at;
    ++forks;
    if (HasFailure()) break;
  }
  EXPECT_GT(forks, 10) << "the start was not met";
}

}  // namespace
}  // namespace pinion
