// Machine code that makes system calls past libc, and code that only looks like it.
#include "monitor/own_calls.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "monitor/known_code.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

#if defined(__x86_64__)

constexpr unsigned char kMunmap = SYS_munmap, kFutex = SYS_futex;

std::string found(std::initializer_list<unsigned> bytes, std::size_t before = 0) {
  std::vector<std::byte> code(before, std::byte{0x90});
  for (unsigned byte : bytes) code.push_back(static_cast<std::byte>(byte));
  code.resize(code.size() + 8, std::byte{0xc3});
  const auto call = find_own_call(code.data(), code.size());
  return call ? call->name : "";
}

TEST(OwnCalls, ANumberBesideItsCall) {
  EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0, 0x0f, 0x05}), "munmap");
  EXPECT_EQ(found({0x48, 0xc7, 0xc0, SYS_madvise, 0, 0, 0, 0x0f, 0x05}), "madvise");
  EXPECT_EQ(found({0x6a, SYS_mremap, 0x58, 0x0f, 0x05}), "mremap");
  EXPECT_EQ(found({0xb8, kFutex, 0, 0, 0, 0x0f, 0x05}), "");
  // mov eax, edi; and a number that was moved to another register before.
  EXPECT_EQ(found({0x89, 0xf8, 0x0f, 0x05}), "any system call");
  EXPECT_EQ(found({0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 0x05}), "any system call");
  EXPECT_EQ(found({0x89, 0xe8, 0x0f, 0x05}), "") << "OpenMP's waiting";
  // libc's record of the break would be wrong afterwards.
  EXPECT_EQ(found({0xb8, SYS_brk, 0, 0, 0, 0x0f, 0x05}), "");
}

TEST(OwnCalls, ArgumentsMayComeBetween) {
  // mov eax, munmap; mov rdi, [rsp+8]; lea rsi, [rbx+rcx*4+256]; xor edx, edx; mov r10d, 34; syscall
  EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0,    0x48, 0x8b, 0x7c, 0x24, 0x08, 0x48, 0x8d, 0xb4, 0x8b,
                   0,    1,       0, 0, 0x31, 0xd2, 0x41, 0xba, 34,   0,    0,    0,    0x0f, 0x05}),
            "munmap");
  EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0, 0xb8, kFutex, 0, 0, 0, 0x0f, 0x05}), "")
      << "another number follows";
  EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0, 0x31, 0xc0, 0x0f, 0x05}), "") << "xor eax, eax";
  EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0, 0xc3, 0x0f, 0x05}), "") << "the function has returned";
}

TEST(OwnCalls, BytesInsideOtherInstructions) {
  // mov eax, munmap; mov edx, [rip+0x50f]: the displacement holds the bytes of a system call.
  EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0, 0x8b, 0x15, 0x0f, 0x05, 0, 0}), "");
}

TEST(OwnCalls, AnywhereInTheCode) {
  for (std::size_t before = 0; before < 200; ++before)
    EXPECT_EQ(found({0xb8, kMunmap, 0, 0, 0, 0x0f, 0x05}, before), "munmap") << before;
}

TEST(OwnCalls, NothingIsReadBeyond) {
  for (std::size_t bytes = 0; bytes < 80; ++bytes) {
    const std::vector<std::byte> code(bytes, std::byte{0x0f});  // under AddressSanitizer
    EXPECT_FALSE(find_own_call(code.data(), code.size()));
  }
}

#endif

// This program's own calls are libpinion's; all other code that tests load goes through libc.
TEST(OwnCalls, LoadedCodeIsReadOnce) {
  CodeFinding finding;
  for (int parts = 0; !(finding = look_at_loaded_code(std::size_t{1} << 20)).complete; ++parts)
    ASSERT_LT(parts, 4096);
  EXPECT_FALSE(finding.own_calls) << finding.own_calls.message;
  EXPECT_TRUE(look_at_loaded_code(0).complete);
  EXPECT_EQ(own_calls_found().code, finding.own_calls.code);
}

/// A file of code that is mapped to be run: `bytes` times the filler, and the call in the middle.
class MappedCode {
 public:
  MappedCode(const std::string& path, std::size_t bytes, const std::vector<unsigned char>& call = {})
      : bytes_(bytes) {
    std::vector<unsigned char> code(bytes, 0x90);
    std::copy(call.begin(), call.end(), code.begin() + static_cast<std::ptrdiff_t>(bytes / 2));
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(code.data()), static_cast<std::streamsize>(bytes));
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    ::close(file);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~MappedCode() { ::munmap(memory_, bytes_); }
  MappedCode(const MappedCode&) = delete;
  MappedCode& operator=(const MappedCode&) = delete;

 private:
  std::size_t bytes_;
  void* memory_;
};

CodeFinding look_at_the_rest() {
  CodeFinding finding;
  for (int parts = 0; !(finding = look_at_loaded_code(std::size_t{64} << 20)).complete && parts < 4096;
       ++parts)
    continue;
  return finding;
}

// A module that is compiled on the fly: its file has gone, and then another thread unloads it.
TEST(OwnCalls, CodeThatGoesWhileItIsReadIsNoFault) {
  const TemporaryDirectory directory;
  test::in_child([&] {
    const std::string path = directory.path() + "/module.so";
    std::optional<MappedCode> code(std::in_place, path, std::size_t{1} << 20);
    ::unlink(path.c_str());
    ASSERT_FALSE(look_at_loaded_code(0).complete) << "listed, not read";
    code.reset();
    const CodeFinding finding = look_at_the_rest();
    EXPECT_TRUE(finding.complete);
    EXPECT_FALSE(finding.own_calls) << finding.own_calls.message;
  });
}

// ---- What an earlier process has read ----

/// Waits until a file has been as it is for so long that its times tell.
void await_age(const char* path) {
  struct stat status {};
  ASSERT_EQ(::stat(path, &status), 0);
  while (::time(nullptr) - status.st_ctime < 11) ::usleep(200'000);
}

/// Runs f in a child with an empty /dev/shm of its own. False: the system refuses it one.
bool with_own_shared_memory(const std::function<void()>& f) {
  constexpr int kRefused = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    const int space = ::geteuid() == 0 ? 0 : CLONE_NEWUSER;
    if (::unshare(CLONE_NEWNS | space) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777") != 0)
      ::_exit(kRefused);
    f();
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kRefused) return false;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  return true;
}

TEST(OwnCalls, WhatOneProcessHasReadTheNextOnesNeedNot) {
  await_age("/proc/self/exe");
  const bool done = with_own_shared_memory([] {
    test::in_child([] { EXPECT_FALSE(look_at_loaded_code(0).complete); });
    test::in_child([] { EXPECT_TRUE(look_at_the_rest().complete); });
    test::in_child([] { EXPECT_TRUE(look_at_loaded_code(0).complete); });
    std::ofstream("/dev/shm/" + KnownCode::name()) << std::string(1 << 15, 'x');
    test::in_child([] { EXPECT_FALSE(look_at_loaded_code(0).complete) << "after damage"; });
  });
  if (!done) GTEST_SKIP() << "no /dev/shm of its own";
}

#if defined(__x86_64__)
// Size and time of modification are as before, as archives set them.
TEST(OwnCalls, AFileThatGotCallsOfItsOwnSinceIsReadAgain) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/library.so";
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const timespec built[] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  const auto build = [&](const std::vector<unsigned char>& call) {
    const MappedCode code(path, kBytes, call);
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), built, 0), 0);
  };
  build({});
  await_age(path.c_str());
  await_age("/proc/self/exe");
  const auto look = [&](std::size_t most_bytes, CodeFinding& finding) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* const code = ::mmap(nullptr, kBytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    ::close(file);
    finding = most_bytes == 0 ? look_at_loaded_code(0) : look_at_the_rest();
    ::munmap(code, kBytes);
  };
  const bool done = with_own_shared_memory([&] {
    CodeFinding finding;
    test::in_child([&] { look(1, finding); });
    test::in_child([&] {
      look(0, finding);
      EXPECT_TRUE(finding.complete) << "it was read before";
    });
    build({0xb8, kMunmap, 0, 0, 0, 0x0f, 0x05});
    test::in_child([&] {
      look(1, finding);
      EXPECT_TRUE(finding.own_calls);
    });
    await_age(path.c_str());
    test::in_child([&] {
      look(1, finding);
      EXPECT_TRUE(finding.own_calls) << "what was found is told to nobody";
    });
  });
  if (!done) GTEST_SKIP() << "no /dev/shm of its own";
}
#endif

#if defined(__x86_64__)
TEST(OwnCalls, AFileThatWasReplacedIsReadWhereItIsMapped) {
  const std::vector<unsigned char> munmap_call{0xb8, kMunmap, 0, 0, 0, 0x0f, 0x05};
  const TemporaryDirectory directory;
  for (const bool mapped_calls : {false, true}) {
    test::in_child([&] {
      const std::string path = directory.path() + "/upgraded.so", newer = directory.path() + "/newer";
      const std::vector<unsigned char> none;
      const MappedCode code(path, std::size_t{1} << 20, mapped_calls ? munmap_call : none);
      { const MappedCode other(newer, std::size_t{1} << 20, mapped_calls ? none : munmap_call); }
      ASSERT_EQ(std::rename(newer.c_str(), path.c_str()), 0);
      EXPECT_EQ(static_cast<bool>(look_at_the_rest().own_calls), mapped_calls);
    });
  }
}

// Pages behind the file's end cannot be run.
TEST(OwnCalls, AFileThatWasCutIsNoFault) {
  const TemporaryDirectory directory;
  test::in_child([&] {
    const std::string path = directory.path() + "/cut.so";
    const MappedCode code(path, std::size_t{1} << 20);
    ASSERT_EQ(::truncate(path.c_str(), 5000), 0);
    const CodeFinding finding = look_at_the_rest();
    EXPECT_TRUE(finding.complete);
    EXPECT_FALSE(finding.own_calls) << finding.own_calls.message;
  });
}
#endif

}  // namespace
}  // namespace pinion
