// The library as a whole: versions, options, users, errors.

#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "fixture.h"
#include "support/kept_registrations.h"
#include "support/sanitizers.h"

namespace c_api_test {
namespace {

// ---- the library ----

TEST_F(ApiTest, VersionIsThatOfTheHeader) {
  const std::string header = std::to_string(PINION_VERSION_MAJOR) + "." +
                             std::to_string(PINION_VERSION_MINOR) + "." +
                             std::to_string(PINION_VERSION_PATCH);
  EXPECT_EQ(pinion_version(), header);
}

TEST_F(ApiTest, BadOptionsAreErrorsThatSayTheValidOnes) {
  EXPECT_EQ(pinion_start("retain=lru"), EINVAL);
  expect_last_error({"unknown option 'retain'", "retention"});
  EXPECT_EQ(pinion_start("retention=always"), EINVAL);
  expect_last_error({"leave-pinned"});
  EXPECT_EQ(pinion_start("device=emulated,nic=/no/such/file"), EINVAL) << last_error();
  expect_last_error({"/no/such/file"});
  EXPECT_EQ(pinion_stop(), EINVAL);
  expect_last_error({"not started"});
}

TEST_F(ApiTest, SwitchedOffByTheUser) {
  EXPECT_EQ(pinion_start("off"), ECANCELED);
  ::setenv("PINION", "off", 1);
  EXPECT_EQ(pinion_start(nullptr), ECANCELED);
  EXPECT_EQ(pinion_start("retention=lru"), ECANCELED);
  expect_last_error({"PINION=off"});
}

TEST_F(ApiTest, EnvironmentOverridesTheCallersOptions) {
  ::setenv("PINION", "limit=1M", 1);
  start("limit=64M,retention=leave-pinned");
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  ASSERT_EQ(pinion_limits(&limits), 0);
  EXPECT_EQ(limits.bytes, 1u << 20);
  Memory memory(1);
  use(memory.begin(), kPage);
  if (pinion::test::kKept) {
    EXPECT_EQ(statistics().regions, 1u) << "retention=leave-pinned holds as well";
  }
}

TEST_F(ApiTest, TwoUsersShareWhatRuns) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(1);
  use(memory.begin(), kPage);

  EXPECT_EQ(pinion_start("retention=lru,limit=2G"), EBUSY);
  expect_last_error({"retention=leave-pinned", "retention=lru", "NULL"});
  ASSERT_EQ(pinion_start("retention=leave-pinned"), 0) << last_error();
  ASSERT_EQ(pinion_start(nullptr), 0) << last_error();
  pinion_domain* second = open();
  EXPECT_EQ(statistics(second).acquires, 0u);

  EXPECT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinion_stop(), 0);
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().hits, 1u) << "one user is left, so all goes on";
  EXPECT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinion_stop(), EINVAL);
}

TEST_F(ApiTest, NothingRunsBeforeTheStartAndAfterTheStop) {
  pinion_domain* domain = nullptr;
  EXPECT_EQ(pinion_domain_open(nullptr, nullptr, &domain), ESHUTDOWN);
  EXPECT_EQ(domain, nullptr);
  expect_last_error({"pinion_start"});
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  EXPECT_EQ(pinion_limits(&limits), ESHUTDOWN);

  start("retention=leave-pinned");
  ASSERT_EQ(pinion_stop(), 0);
  Memory memory(1);
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), ESHUTDOWN);
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &lease), ESHUTDOWN);
  struct pinion_statistics s {};
  s.size = sizeof s;
  EXPECT_EQ(pinion_statistics(domain_, &s), ESHUTDOWN);
  close(domain_);  // the handle must go all the same
}

TEST_F(ApiTest, LastErrorIsOfTheThread) {
  EXPECT_EQ(pinion_stop(), EINVAL);
  const std::string mine = last_error();
  std::thread([] { EXPECT_EQ(last_error(), ""); }).join();
  EXPECT_EQ(last_error(), mine);
}

TEST_F(ApiTest, StartAndStopTwentyTimes) {
  Memory memory(64);
  std::uint64_t pinned = 0;
  std::size_t descriptors = 0;
  for (int i = 0; i < 20; ++i) {
    const bool lru = i % 2;
    start(lru ? "retention=lru" : "retention=helper,device=emulated,nic=none");
    for (std::size_t p = 0; p < 64; p += 8) use(memory.page(p), 8 * kPage);
    EXPECT_GE(statistics().registered_peak_bytes, 8 * kPage);
    if (i % 3 == 0) {
      close(domain_);
      ASSERT_EQ(pinion_stop(), 0);
    } else {
      ASSERT_EQ(pinion_stop(), 0);
      close(domain_);
    }
    if (i == 1) {
      pinned = pinned_by_kernel();
      descriptors = open_descriptors();
    }
  }
  EXPECT_EQ(pinned_by_kernel(), pinned);
  EXPECT_EQ(open_descriptors(), descriptors);
}

// glibc maps large blocks for themselves, and takes them from the heap once as large a one was freed:
// Pinion's own blocks must not decide where the program's buffers are.
TEST_F(ApiTest, TheProgramsBlocksAreMappedAsBefore) {
  if (kSanitized) GTEST_SKIP() << "not glibc's allocator";
  const auto is_mapped = [] {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    const std::size_t before = ::mallinfo2().hblks;
    void* volatile block = std::malloc(kBytes);
    const bool mapped = ::mallinfo2().hblks > before;
    // Not freed, which would be the decision.
    std::memset(block, 0, kBytes);
    return mapped;
  };
  if (!is_mapped()) GTEST_SKIP() << "the tests before have freed as large a block";
  const std::string directory = log_directory();
  start("retention=helper,log=" + directory);
  Memory memory(64);
  use(memory.page(0), 64 * kPage);
  EXPECT_TRUE(is_mapped());
  close(domain_);
  ASSERT_EQ(pinion_stop(), 0);
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(is_mapped());
}

TEST_F(ApiTest, NoHelperThreadIsAnErrorAndLeavesNothingBehind) {
  pthread_attr_t before, huge;
  ASSERT_EQ(::pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(::pthread_attr_init(&huge), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);  // more than an address space has
  ASSERT_EQ(::pthread_setattr_default_np(&huge), 0);
  EXPECT_EQ(pinion_start("retention=helper"), EAGAIN);
  expect_last_error({"helper thread", "ulimit -u"});
  ASSERT_EQ(::pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(pinion_stop(), EINVAL);
  EXPECT_EQ(pinion_start("retention=helper"), 0) << last_error();
}

}  // namespace
}  // namespace c_api_test
