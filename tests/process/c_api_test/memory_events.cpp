// Memory that is unmapped or reported as changed.

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>

#include "fixture.h"
#include "support/eventually.h"
#include "support/kept_registrations.h"
#include "support/sanitizers.h"

namespace c_api_test {
namespace {

// ---- memory events ----

TEST_F(ApiTest, UnmappedAndMappedAnew) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(8);
  char* const address = memory.begin();
  use(address, 8 * kPage);
  memory.unmap();
  Memory again(8, address);
  ASSERT_EQ(again.begin(), address);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, address, kPage, kBoth, &lease), EAGAIN);
  use(address, 8 * kPage);
  const auto s = statistics();
  EXPECT_EQ(s.misses, 2u);
  EXPECT_EQ(s.hits, 0u);
  EXPECT_EQ(s.registrations, 2u);
  EXPECT_EQ(s.registered_bytes, 8 * kPage);
}

TEST_F(ApiTest, UnmappedUnderALease) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(8);
  char* const address = memory.begin();
  pinion_lease lease, fresh;
  ASSERT_EQ(pinion_acquire(domain_, address, 8 * kPage, kBoth, &lease), 0) << last_error();
  const auto old_handle = keys(lease).handle;
  memory.unmap();
  Memory again(8, address);
  ASSERT_EQ(pinion_acquire(domain_, address, 8 * kPage, kBoth, &fresh), 0) << last_error();
  EXPECT_NE(keys(fresh).handle, old_handle);
  EXPECT_EQ(keys(lease).handle, old_handle) << "the transfer under the old lease goes on with its own pages";
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(pinion_release(&fresh), 0);
  EXPECT_TRUE(eventually([&] { return statistics().regions == 1; })) << "the old registration is let go";
}

TEST_F(ApiTest, UnmappedUnderALeaseThatIsAThreadsFirst) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(8);
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), 8 * kPage, kBoth, &lease), 0) << last_error();
  memory.unmap();
  std::thread([&] { EXPECT_EQ(pinion_release(&lease), 0); }).join();
  EXPECT_TRUE(eventually([&] { return statistics().regions == 0; })) << "the registration is let go";
}

TEST_F(ApiTest, FreedAndAllocatedAnew) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized) GTEST_SKIP() << "another allocator";
  start("retention=leave-pinned");
  constexpr std::size_t kBytes = std::size_t{64} << 20;  // beyond malloc's reserve
  // Another thread may take the place in between: the helper, for the arena of its first allocation.
  for (int attempt = 0; attempt < 10; ++attempt) {
    auto* first = static_cast<char*>(std::malloc(kBytes));
    ASSERT_NE(first, nullptr);
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    use(first, 1 << 20);
    std::free(first);
    auto* second = static_cast<char*>(std::malloc(kBytes));
    const bool same_place = reinterpret_cast<std::uintptr_t>(second) == address;
    const auto before = statistics();
    if (same_place) {
      use(second, 1 << 20);
      EXPECT_EQ(statistics().misses, before.misses + 1);
      EXPECT_EQ(statistics().hits, before.hits);
    }
    std::free(second);
    if (same_place) return;
  }
  FAIL() << "the test needs the same place twice";
}

TEST_F(ApiTest, BracketsForWhatLibcDoesNotShow) {
  start("retention=leave-pinned");
  Memory memory(8);
  char* const address = memory.begin();
  use(address, 8 * kPage);

  EXPECT_EQ(pinion_memory_begin(address, 8 * kPage), 0);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, address, kPage, kBoth, &lease), EAGAIN);
  EXPECT_EQ(pinion_acquire(domain_, address, kPage, kBoth, &lease), EAGAIN);
  expect_last_error({"being unmapped"});
  ASSERT_EQ(::syscall(SYS_munmap, address, memory.bytes()), 0);
  memory.forget();
  Memory again(8, address);
  EXPECT_EQ(pinion_memory_end(address, 8 * kPage), 0);

  use(address, 8 * kPage);
  const auto s = statistics();
  EXPECT_EQ(s.misses, 2u);
  EXPECT_EQ(s.bounced, 1u);
  EXPECT_EQ(s.registrations, 2u);
}

TEST_F(ApiTest, BracketsMayBeginBeforePinionRuns) {
  Memory memory(8);
  ASSERT_EQ(pinion_memory_begin(memory.begin(), memory.bytes()), 0);
  start("retention=leave-pinned");
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.page(2), kPage, kBoth, &lease), EAGAIN);
  ASSERT_EQ(pinion_memory_end(memory.begin(), memory.bytes()), 0);
  use(memory.page(2), kPage);
  EXPECT_EQ(statistics().misses, 1u);
}

TEST_F(ApiTest, AnEndWithoutABeginDoesNoHarm) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(2);
  EXPECT_EQ(pinion_memory_end(memory.begin(), kPage), 0);
  use(memory.begin(), kPage);
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().hits, 1u);
  EXPECT_EQ(pinion_memory_begin(nullptr, kPage), EINVAL);
  EXPECT_EQ(pinion_memory_begin(memory.begin(), 0), EINVAL);
  EXPECT_EQ(pinion_memory_end(memory.begin(), SIZE_MAX), EINVAL);
}

}  // namespace
}  // namespace c_api_test
