// Structures of other versions, and forked children.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "fixture.h"
#include "support/kept_registrations.h"
#include "support/sanitizers.h"

namespace c_api_test {
namespace {

// ---- structures that may grow, fork ----

TEST_F(ApiTest, StructuresOfOtherVersions) {
  start("retention=leave-pinned");
  Memory memory(1);
  use(memory.begin(), kPage);
  struct pinion_statistics s {};
  EXPECT_EQ(pinion_statistics(domain_, &s), EINVAL) << "size not set";
  expect_last_error({"size"});
  EXPECT_EQ(pinion_statistics(domain_, nullptr), EINVAL);
  EXPECT_EQ(pinion_limits(nullptr), EINVAL);

  // A caller that was compiled when there were only three fields.
  s = {};
  s.hits = 77;
  s.size = offsetof(struct pinion_statistics, hits);
  ASSERT_EQ(pinion_statistics(domain_, &s), 0);
  EXPECT_EQ(s.acquires, 1u);
  EXPECT_EQ(s.hits, 77u) << "beyond what the caller has";

  // A caller with fields that are newer than this library.
  struct Newer {
    struct pinion_limits known;
    std::uint64_t more = 77;
  } newer{};
  newer.known.size = sizeof newer;
  ASSERT_EQ(pinion_limits(&newer.known), 0);
  EXPECT_EQ(newer.known.size, sizeof(struct pinion_limits));
  EXPECT_EQ(newer.more, 77u);
}

TEST_F(ApiTest, AForkedChildIsInert) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(16);
  use(memory.page(8), kPage);
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  const std::uint64_t pinned = pinned_by_kernel();

  in_child([&] {
    pinion_lease own;
    if (pinion_acquire(domain_, memory.begin(), kPage, kBoth, &own) != ESHUTDOWN) return 1;
    if (last_error().find("forked") == std::string::npos) return 2;
    if (pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &own) != ESHUTDOWN) return 3;
    struct pinion_keys k {};
    k.size = sizeof k;
    if (pinion_lease_keys(&lease, &k) != ESHUTDOWN) return 4;
    if (pinion_release(&lease) != 0) return 5;
    if (pinned_by_kernel() != 0) return 6;
    if (pinion_stop() != EINVAL) return 7;  // the child cannot stop the parent's engine
    if (pinion_memory_begin(memory.begin(), kPage) != 0 || pinion_memory_end(memory.begin(), kPage) != 0)
      return 8;
    if (pinion_domain_close(domain_) != 0) return 9;
    return 0;
  });
  EXPECT_EQ(pinned_by_kernel(), pinned) << "the child has let nothing of the parent's go";
  use(memory.page(8), kPage);
  EXPECT_EQ(statistics().hits, 1u);
  EXPECT_EQ(pinion_release(&lease), 0);
}

// The program takes every descriptor for files of its own: ours, the child's copies of ours, and at the stop.
TEST_F(ApiTest, FilesOfTheProgramStayOpen) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized) GTEST_SKIP() << "no threads after a fork";
  const std::string directory = log_directory();
  Memory memory(64);
  in_child([&] {
    if (pinion_start(("retention=leave-pinned,log=" + directory).c_str()) != 0) return 1;
    pinion_domain* domain = nullptr;
    if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 2;
    const auto use_page = [&](std::size_t i) {
      pinion_lease lease;
      return pinion_acquire(domain, memory.page(i), kPage, kBoth, &lease) == 0 && pinion_release(&lease) == 0;
    };
    for (std::size_t i = 0; i < 32; i += 2)
      if (!use_page(i)) return 3;
    ::syscall(SYS_close_range, 3u, ~0u, 0u);
    const int file = ::memfd_create("the program's", MFD_CLOEXEC);
    constexpr int kNumbers = 1500;
    std::vector<int> taken;
    for (int number = 3; number < kNumbers; ++number)
      if (::dup2(file, number) == number) taken.push_back(number);
    struct stat expected {};
    ::fstat(file, &expected);
    const auto untouched = [&] {
      return std::all_of(taken.begin(), taken.end(), [&](int number) {
        struct stat found {};
        return ::fstat(number, &found) == 0 && found.st_ino == expected.st_ino && found.st_size == 0;
      });
    };
    const pid_t child = ::fork();
    if (child == 0) ::_exit(untouched() ? 0 : 1);
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 4;
    // The descriptors are gone, and the table is full: the program's own files stay as they are.
    use_page(33);
    if (!untouched()) return 5;
    ::close(taken.back());
    taken.pop_back();
    for (std::size_t i = 32; i < 64; i += 2)
      if (!use_page(i)) return 6;
    if (pinned_by_kernel() < 32 * kPage) return 7;
    if (pinion_domain_close(domain) != 0 || pinion_stop() != 0) return 8;
    return untouched() ? 0 : 9;
  });
  std::filesystem::remove_all(directory);
}

TEST_F(ApiTest, AForkedChildMayStartItsOwn) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized) GTEST_SKIP() << "no threads after a fork";
  start("retention=leave-pinned");
  Memory memory(16);
  use(memory.begin(), kPage);
  in_child([&] {
    if (pinion_start("retention=lru") != 0) return 1;
    pinion_domain* domain = nullptr;
    if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 2;
    pinion_lease lease;
    if (pinion_try_acquire(domain, memory.begin(), kPage, kBoth, &lease) != EAGAIN) return 3;
    if (pinion_acquire(domain, memory.begin(), kPage, kBoth, &lease) != 0) return 4;
    if (pinned_by_kernel() != kPage) return 5;
    if (pinion_release(&lease) != 0 || pinion_domain_close(domain) != 0 || pinion_stop() != 0) return 6;
    return pinned_by_kernel() == 0 ? 0 : 7;
  });
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().hits, 1u);
}

}  // namespace
}  // namespace c_api_test
