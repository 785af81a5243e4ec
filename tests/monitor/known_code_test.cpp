// The file by which processes of a user tell each other what code they have read, in the hands of others.
#include "monitor/known_code.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

constexpr std::uint64_t kOne = 0x1234'5678'9abc'def1, kOther = 0x0fed'cba9'8765'4322;

class KnownCodeTest : public testing::Test {
 protected:
  std::string path() const { return directory_.path() + "/" + KnownCode::name(); }
  KnownCode known() const { return KnownCode(directory_.path()); }
  std::string contents(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& path, const std::string& contents, mode_t mode = 0600) const {
    std::ofstream(path, std::ios::binary) << contents;
    ::chmod(path.c_str(), mode);
  }

  const TemporaryDirectory directory_;
};

TEST_F(KnownCodeTest, IsRemembered) {
  EXPECT_FALSE(known().has(kOne));
  known().add(kOne);
  EXPECT_TRUE(known().has(kOne));
  EXPECT_FALSE(known().has(kOther));
  known().add(kOther);
  EXPECT_TRUE(known().has(kOne) && known().has(kOther));
}

TEST_F(KnownCodeTest, OneThatTakesAnothersPlaceIsAllThatIsThere) {
  const std::uint64_t rival = kOne + KnownCode::kFingerprints;
  known().add(kOne);
  known().add(rival);
  EXPECT_TRUE(known().has(rival));
  EXPECT_FALSE(known().has(kOne));
}

TEST_F(KnownCodeTest, TheUnknownIsNotThere) {
  known().add(0);
  known().add(kOne);
  EXPECT_FALSE(known().has(0)) << "a file of zeros has no fingerprint";
}

TEST_F(KnownCodeTest, IsForItsUserAlone) {
  known().add(kOne);
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, S_IFREG | 0600u);
  EXPECT_LE(static_cast<std::uint64_t>(status.st_size), KnownCode::kFingerprints * sizeof(std::uint64_t));
}

TEST_F(KnownCodeTest, FilesThatOthersMayWriteAreNeitherBelievedNorWritten) {
  known().add(kOne);
  const std::string good = contents(path());
  const std::string aside = directory_.path() + "/aside";
  const auto tries = [&](const char* what, const std::function<void()>& make) {
    std::filesystem::remove_all(path());
    std::filesystem::remove_all(aside);
    make();
    EXPECT_FALSE(known().has(kOne)) << what;
    known().add(kOther);
    if (std::filesystem::is_regular_file(path())) {
      EXPECT_TRUE(contents(path()) == good) << what << " was written";
    }
  };
  tries("a symbolic link", [&] {
    write(aside, good);
    ASSERT_EQ(::symlink(aside.c_str(), path().c_str()), 0);
  });
  tries("a second name", [&] {
    write(aside, good);
    ASSERT_EQ(::link(aside.c_str(), path().c_str()), 0);
  });
  tries("open to the group", [&] { write(path(), good, 0660); });
  tries("open to all", [&] { write(path(), good, 0666); });
  tries("a pipe", [&] { ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0); });
  tries("a directory", [&] { std::filesystem::create_directory(path()); });
  if (::geteuid() == 0) {
    tries("another user's", [&] {
      write(path(), good);
      ASSERT_EQ(::chown(path().c_str(), 1, 1), 0);
    });
  }
  EXPECT_FALSE(KnownCode(directory_.path() + "/missing").has(kOne));
}

TEST_F(KnownCodeTest, DamageIsNoFingerprint) {
  known().add(kOne);
  const std::string good = contents(path());
  const std::size_t at = good.size() - sizeof kOne;
  for (std::size_t byte = 0; byte < sizeof kOne; ++byte) {
    std::string damaged = good;
    damaged[at + byte] = static_cast<char>(damaged[at + byte] ^ 0x10);
    write(path(), damaged);
    EXPECT_FALSE(known().has(kOne)) << "byte " << byte;
    write(path(), good.substr(0, at + byte));
    EXPECT_FALSE(known().has(kOne)) << "torn at " << byte;
  }
  write(path(), std::string(std::size_t{1} << 20, '\xff'));
  EXPECT_FALSE(known().has(kOne));
  known().add(kOne);
  EXPECT_TRUE(known().has(kOne)) << "a file that is too long serves all the same";
}

TEST_F(KnownCodeTest, WhereFilesMayNotGrowTheProgramGoesOn) {
  test::in_child([&] {
    const rlimit none{0, 0};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
    ::signal(SIGXFSZ, SIG_DFL);
    known().add(kOne);
    EXPECT_FALSE(known().has(kOne));
  });
}

std::uint64_t fingerprint(int file, std::uint64_t offset, std::uint64_t bytes, std::uint64_t reader) {
  struct stat status {};
  ::fstat(file, &status);
  return fingerprint_of_code(file, status, offset, bytes, reader);
}

TEST(FingerprintOfCode, TellsStatesPartsAndReadersApart) {
  // Files that have been there for long.
  const int shell = ::open("/bin/sh", O_RDONLY | O_CLOEXEC);
  const int other = ::open("/bin/ls", O_RDONLY | O_CLOEXEC);
  const std::uint64_t one = fingerprint(shell, 0, 4096, 1);
  ASSERT_NE(one, 0u);
  EXPECT_EQ(fingerprint(shell, 0, 4096, 1), one);
  EXPECT_NE(fingerprint(shell, 4096, 4096, 1), one);
  EXPECT_NE(fingerprint(shell, 0, 8192, 1), one);
  EXPECT_NE(fingerprint(shell, 0, 4096, 2), one);
  EXPECT_NE(fingerprint(other, 0, 4096, 1), one);
  ::close(shell);
  ::close(other);
}

TEST(FingerprintOfCode, AFileThatHasJustChangedHasNone) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/library.so";
  std::ofstream(path) << std::string(8192, 'x');
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(fingerprint(file, 0, 8192, 1), 0u);
  // Its time of modification is the program's to choose, its time of change the kernel's.
  const timespec old[] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::futimens(file, old), 0);
  EXPECT_EQ(fingerprint(file, 0, 8192, 1), 0u);
  ::close(file);
  EXPECT_EQ(fingerprint(-1, 0, 8192, 1), 0u);
}

}  // namespace
}  // namespace pinion
