// Requests to stop: whose are believed, and what the process answers.
#include "node/stop_request.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/in_child.h"

namespace pinion::node {
namespace {

std::string path_of(pid_t process, unsigned i = 0) {
  struct stat space {};
  ::stat("/proc/self/ns/pid", &space);
  return "/dev/shm/pinion-stop." + std::to_string(space.st_ino) + "-" + std::to_string(process) + "." +
         std::to_string(i);
}

void expect_not_asked() {
  StopRequest request;
  EXPECT_FALSE(request.asked());
}

// Each in a process of its own: one that was asked stays so.
TEST(StopRequest, AProcessThatIsAskedAnswers) {
  test::in_child([] {
    StopRequest request;
    EXPECT_FALSE(request.asked());
    ASSERT_FALSE(ask_to_stop(::getpid()));
    EXPECT_FALSE(stop_answer(::getpid()).has_value());
    EXPECT_TRUE(request.asked());
    request.answer(4096);
    ASSERT_TRUE(stop_answer(::getpid()).has_value());
    EXPECT_EQ(stop_answer(::getpid())->registered, 4096u);
    request.answer(0);
    EXPECT_EQ(stop_answer(::getpid())->registered, 0u);
    EXPECT_FALSE(ask_to_stop(::getpid()));
    EXPECT_EQ(stop_answer(::getpid())->registered, 0u) << "a second request leaves the answer";
    request.remove();
    EXPECT_NE(::access(path_of(::getpid()).c_str(), F_OK), 0);
    EXPECT_TRUE(request.asked()) << "for good";
  });
}

TEST(StopRequest, AFileThatOthersMayWriteIsNotBelieved) {
  test::in_child([] {
    ASSERT_FALSE(ask_to_stop(::getpid()));
    const std::string path = path_of(::getpid());
    ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
    expect_not_asked();
    ::unlink(path.c_str());
  });
}

TEST(StopRequest, AnotherUsersFileIsNotBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone can give a file to another user";
  test::in_child([] {
    ASSERT_FALSE(ask_to_stop(::getpid()));
    const std::string path = path_of(::getpid());
    ASSERT_EQ(::chown(path.c_str(), 12345, static_cast<gid_t>(-1)), 0);
    expect_not_asked();
    // Root's next request takes its place.
    ASSERT_FALSE(ask_to_stop(::getpid()));
    EXPECT_TRUE(StopRequest().asked());
    ::unlink(path.c_str());
  });
}

TEST(StopRequest, ANameThatAnotherUserHoldsIsPassedOver) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone can become another user";
  test::in_child([] {
    const std::string path = path_of(::getpid());
    std::ofstream(path) << "mine";
    ASSERT_EQ(::seteuid(12345), 0);
    const Error error = ask_to_stop(::getpid());
    EXPECT_FALSE(error) << error.message;
    StopRequest request;
    EXPECT_TRUE(request.asked());
    request.answer(0);
    EXPECT_TRUE(stop_answer(::getpid()).has_value());
    request.remove();
    EXPECT_NE(::access(path_of(::getpid(), 1).c_str(), F_OK), 0);
    ASSERT_EQ(::seteuid(0), 0);
    EXPECT_EQ(::unlink(path.c_str()), 0) << "the other user's file stays";
  });
}

// Containers may share /dev/shm: the same number there is another process.
TEST(StopRequest, AProcessOfAnotherNamespaceHasARequestOfItsOwn) {
  test::in_child([] {
    const std::string other = "/dev/shm/pinion-stop." + std::to_string(::getpid());
    std::ofstream(other) << "a request to a process of that number elsewhere";
    ASSERT_FALSE(ask_to_stop(::getpid()));
    EXPECT_EQ(std::filesystem::file_size(other), 47u);
    std::filesystem::remove(other);
    ::unlink(path_of(::getpid()).c_str());
  });
}

TEST(StopRequest, AHardLinkOrASymbolicLinkIsNotBelieved) {
  test::in_child([] {
    ASSERT_FALSE(ask_to_stop(::getpid()));
    const std::string path = path_of(::getpid()), other = path + ".other";
    ASSERT_EQ(::link(path.c_str(), other.c_str()), 0);
    expect_not_asked();
    ASSERT_EQ(::unlink(path.c_str()), 0);
    ASSERT_EQ(::symlink(other.c_str(), path.c_str()), 0);
    expect_not_asked();
    ::unlink(path.c_str());
    ::unlink(other.c_str());
  });
}

TEST(StopRequest, AFileLeftByAnEarlierProcessOfThatNumberMeansNothing) {
  test::in_child([] {
    ASSERT_FALSE(ask_to_stop(::getpid()));
    const std::string path = path_of(::getpid());
    const int file = ::open(path.c_str(), O_RDWR);
    const std::uint64_t identity = 1;
    ASSERT_EQ(::pwrite(file, &identity, sizeof identity, 8), ssize_t{sizeof identity});
    ::close(file);
    expect_not_asked();
    ASSERT_FALSE(ask_to_stop(::getpid()));
    EXPECT_TRUE(StopRequest().asked());
    ::unlink(path.c_str());
  });
}

TEST(StopRequest, AFileOfAnyContentMeansNothing) {
  test::in_child([] {
    const std::string path = path_of(::getpid());
    for (const std::size_t bytes : {0u, 7u, 32u, 4096u}) {
      std::ofstream(path) << std::string(bytes, 'x');
      ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
      expect_not_asked();
    }
    ::unlink(path.c_str());
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_not_asked();
    ::unlink(path.c_str());
  });
}

TEST(StopRequest, AnotherUsersProcessIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone can become another user";
  const pid_t process = ::getpid();
  test::in_child([process] {
    ASSERT_EQ(::setresuid(12345, 12345, 12345), 0);
    const Error error = ask_to_stop(process);
    EXPECT_EQ(error.code, EPERM);
    EXPECT_STREQ(error.message, ("process " + std::to_string(process) +
                                 " is of user 0: that user or root may stop Pinion in it")
                                    .c_str());
  });
}

TEST(StopRequest, RootAsksAnotherUsersProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone can become another user";
  int asked[2], answered[2];
  ASSERT_EQ(::pipe(asked), 0);
  ASSERT_EQ(::pipe(answered), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    char word = 0;
    const bool ready = ::setresuid(12345, 12345, 12345) == 0 && ::write(answered[1], &word, 1) == 1 &&
                       ::read(asked[0], &word, 1) == 1;
    StopRequest request;
    const bool ok = ready && request.asked();
    if (ok) request.answer(0);
    ::_exit(ok && ::write(answered[1], &word, 1) == 1 && ::read(asked[0], &word, 1) == 1 ? 0 : 1);
  }
  char word = 0;
  ASSERT_EQ(::read(answered[0], &word, 1), 1);
  const Error error = ask_to_stop(process);
  EXPECT_FALSE(error) << error.message;
  ASSERT_EQ(::write(asked[1], &word, 1), 1);
  ASSERT_EQ(::read(answered[0], &word, 1), 1);
  EXPECT_TRUE(stop_answer(process).has_value());
  ASSERT_EQ(::write(asked[1], &word, 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
  ::unlink(path_of(process).c_str());
}

TEST(StopRequest, AProcessThatIsNotThereIsNamed) {
  const Error error = ask_to_stop(0x3fffffff);
  EXPECT_EQ(error.code, ESRCH);
  EXPECT_STREQ(error.message, "there is no process 1073741823");
}

}  // namespace
}  // namespace pinion::node
