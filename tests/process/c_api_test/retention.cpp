// Limits, and what each retention keeps.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "base/call_kind.h"
#include "fixture.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/eventually.h"
#include "support/kept_registrations.h"

namespace c_api_test {
namespace {

// ---- limits ----

TEST_F(ApiTest, BeyondTheLimitIsAnErrorAndNoLease) {
  start("retention=leave-pinned,limit=1M");
  const std::size_t quarter = (std::size_t{256} << 10) / kPage;
  Memory memory(8 * quarter);
  const std::uint64_t before = pinned_by_kernel();
  pinion_lease lease, held[4];
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), memory.bytes(), kBoth, &lease), ENOMEM);
  expect_last_error({"1 MiB", "--limit", "2 MiB more", "raise the limit"});
  EXPECT_EQ(pinion_release(&lease), EINVAL);

  for (std::size_t i = 0; i < 4; ++i) use(memory.page(i * quarter), quarter * kPage);
  for (std::size_t i = 0; i < 4; ++i)
    ASSERT_EQ(pinion_acquire(domain_, memory.page((4 + i) * quarter), quarter * kPage, kBoth, &held[i]), 0)
        << "idle memory makes room: " << last_error();
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), ENOMEM) << "all is in use";

  struct pinion_limits limits {};
  limits.size = sizeof limits;
  ASSERT_EQ(pinion_limits(&limits), 0);
  EXPECT_EQ(limits.bytes, 1u << 20);
  EXPECT_EQ(limits.bytes_in_use, 1u << 20);
  EXPECT_EQ(limits.regions_in_use, 4u);
  EXPECT_STREQ(limits.bytes_from, "--limit");
  EXPECT_EQ(pinned_by_kernel() - before, 1u << 20);

  const auto s = statistics();
  EXPECT_EQ(s.bounced, 2u);
  EXPECT_EQ(s.bounced_bytes, memory.bytes() + kPage);
  EXPECT_EQ(s.registered_peak_bytes, 1u << 20);
  for (pinion_lease& each : held) EXPECT_EQ(pinion_release(&each), 0);
}

TEST_F(ApiTest, LimitOfRegions) {
  start("retention=leave-pinned,limit-regions=2");
  Memory memory(8);
  pinion_lease a, b, c;
  ASSERT_EQ(pinion_acquire(domain_, memory.page(0), kPage, kBoth, &a), 0) << last_error();
  ASSERT_EQ(pinion_acquire(domain_, memory.page(2), kPage, kBoth, &b), 0) << last_error();
  EXPECT_EQ(pinion_acquire(domain_, memory.page(4), kPage, kBoth, &c), ENOMEM);
  expect_last_error({"2 regions (--limit-regions)"});
  EXPECT_EQ(pinion_release(&a), 0);
  ASSERT_EQ(pinion_acquire(domain_, memory.page(4), kPage, kBoth, &c), 0) << last_error();
  EXPECT_EQ(pinion_release(&b), 0);
  EXPECT_EQ(pinion_release(&c), 0);
}

// ---- retention ----

TEST_F(ApiTest, ObserveRegistersNothing) {
  start("retention=observe");
  Memory memory(8);
  const std::uint64_t before = pinned_by_kernel();
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &lease), EAGAIN);
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  struct pinion_keys k {};
  k.size = sizeof k;
  EXPECT_EQ(pinion_lease_keys(&lease, &k), ENODATA);
  expect_last_error({"observe"});
  EXPECT_EQ(pinned_by_kernel(), before);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(statistics().observed, 1u);
  EXPECT_EQ(statistics().registrations, 0u);
}

TEST_F(ApiTest, OnDemandKeepsNothing) {
  start("retention=on-demand");
  Memory memory(8);
  const std::uint64_t before = pinned_by_kernel();
  for (int i = 0; i < 3; ++i) use(memory.begin(), memory.bytes());
  EXPECT_EQ(statistics().misses, 3u);
  EXPECT_EQ(statistics().deregistrations, 3u);
  EXPECT_EQ(statistics().registered_bytes, 0u);
  EXPECT_EQ(statistics().registered_peak_bytes, memory.bytes());
  EXPECT_EQ(pinned_by_kernel(), before);
}

TEST_F(ApiTest, LeavePinnedKeepsAll) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(64);
  const std::uint64_t before = pinned_by_kernel();
  for (int round = 0; round < 2; ++round)
    for (std::size_t p = 0; p < 64; p += 4) use(memory.page(p), 4 * kPage);
  EXPECT_EQ(statistics().misses, 16u);
  EXPECT_EQ(statistics().hits, 16u);
  EXPECT_EQ(statistics().registered_bytes, 64 * kPage);
  EXPECT_EQ(pinned_by_kernel() - before, 64 * kPage);
}

TEST_F(ApiTest, LruKeepsItsSize) {
  NEEDS_KEPT_REGISTRATIONS();
  const std::size_t keep = 8 * kPage;
  start("retention=lru,lru-size=" + std::to_string(keep));
  Memory memory(64);
  for (std::size_t p = 0; p < 64; p += 2) {
    use(memory.page(p), kPage);
    EXPECT_LE(statistics().registered_bytes, keep + kPage);
  }
  EXPECT_EQ(statistics().misses, 32u);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, memory.page(0), kPage, kBoth, &lease), EAGAIN) << "the oldest went";
  ASSERT_EQ(pinion_try_acquire(domain_, memory.page(62), kPage, kBoth, &lease), 0) << "the newest stayed";
  EXPECT_EQ(pinion_release(&lease), 0);
}

TEST_F(ApiTest, TheHelperRegistersAheadOfAPeriodicUser) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=helper,minimum-gain=0,device=emulated,nic=none");
  Memory memory(64);
  // Never sooner: uses that made up for lost time would leave `shortest` with their interval for good. Far
  // longer than a helper on busy cores wakes late: between nearer uses nothing is let go there, and rightly.
  const auto one_use = [&] {
    use(memory.begin(), memory.bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return statistics().registrations_ahead >= 3 && statistics().hits >= 3;
  };
  ASSERT_TRUE(eventually(one_use)) << statistics().registrations_ahead << " ahead, " << statistics().hits
                                   << " hits";
  const auto s = statistics();
  EXPECT_GT(s.registrations, s.misses) << "not all by this thread";
  EXPECT_GE(s.deregistrations, s.registrations_ahead) << "and let go in between";
}

TEST_F(ApiTest, TheHelperLetsGoWhatIsNotExpectedBack) {
  start("retention=helper,minimum-gain=0");
  Memory memory(16);
  const std::uint64_t before = pinned_by_kernel();
  use(memory.begin(), memory.bytes());
  EXPECT_TRUE(eventually([&] { return statistics().registered_bytes == 0; }));
  EXPECT_EQ(pinned_by_kernel(), before);
}

// A use that is seen ends in a record with its call site; the log distinguishes them.
[[gnu::noinline]] int acquire_here(pinion_domain* domain, const Memory& memory, pinion_lease& lease) {
  const int error = pinion_acquire(domain, memory.begin(), kPage, kBoth, &lease);
  asm volatile("");
  return error;
}
[[gnu::noinline]] int acquire_there(pinion_domain* domain, const Memory& memory, pinion_lease& lease) {
  const int error = pinion_acquire(domain, memory.begin(), kPage, kBoth, &lease);
  asm volatile("" : : : "memory");
  return error;
}

TEST_F(ApiTest, CallSitesAreTheCallers) {
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  Memory memory(1);
  for (int i = 0; i < 6; ++i) {
    pinion_lease lease;
    ASSERT_EQ((i % 3 ? acquire_here : acquire_there)(domain_, memory, lease), 0) << last_error();
    ASSERT_EQ(pinion_release(&lease), 0);
  }
  ASSERT_EQ(pinion_stop(), 0);

  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  std::map<std::uint64_t, int> uses;
  for (const auto& event : log.events) {
    if (event.kind != pinion::runlog::EventKind::lease) continue;
    EXPECT_EQ(event.call, static_cast<std::uint8_t>(pinion::CallKind::api));
    ++uses[event.site];
  }
  ASSERT_EQ(uses.size(), 2u);
  for (const auto& site : log.sites) {
    ASSERT_GT(site.frame_count, 1u);
    const auto function =
        reinterpret_cast<std::uint64_t>(uses[site.hash] == 4 ? acquire_here : acquire_there);
    EXPECT_GT(site.frames[0], function) << "the innermost frame is the caller's";
    EXPECT_LT(site.frames[0], function + 512);
  }
  EXPECT_EQ(log.sites.size(), 2u);
  EXPECT_EQ(log.live.pinned_at_exit_bytes, 0u);
  std::filesystem::remove_all(directory);
}

// Memory that is used once and unmapped at once is gone before the helper reads its record.
TEST_F(ApiTest, MemoryThatGoesAtOnceIsHeardOf) {
  NEEDS_KEPT_REGISTRATIONS();
  constexpr std::size_t kUses = 20, kFar = std::size_t{4} << 20;  // events are looked at by 2 MB
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  auto* const room = static_cast<char*>(::mmap(nullptr, kUses * kFar, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(room, MAP_FAILED);
  for (std::size_t i = 0; i < kUses; ++i) {
    use(room + i * kFar, kPage);
    ASSERT_EQ(::munmap(room + i * kFar, kPage), 0);
  }
  ASSERT_EQ(pinion_stop(), 0);
  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  std::size_t heard = 0;
  for (const auto& event : log.events) {
    const std::uint64_t place = event.address - reinterpret_cast<std::uintptr_t>(room);
    heard += event.kind == pinion::runlog::EventKind::memory_event && event.bytes == kPage &&
             place < kUses * kFar && place % kFar == 0;
  }
  EXPECT_EQ(heard, kUses);
  ::munmap(room, kUses * kFar);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace c_api_test
