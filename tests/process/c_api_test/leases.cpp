// Leases: requests, rights, threads, the kernel's own count.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/kernel/pin.h"
#include "fixture.h"
#include "monitor/memory_events.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/kept_registrations.h"
#include "support/sanitizers.h"

namespace c_api_test {
namespace {

// ---- leases ----

TEST_F(ApiTest, RequestsThatMakeNoSense) {
  start("retention=leave-pinned");
  Memory memory(1);
  using Acquire = int (*)(pinion_domain*, const void*, std::size_t, unsigned, pinion_lease*);
  for (const Acquire acquire : {Acquire{pinion_acquire}, Acquire{pinion_try_acquire}}) {
    pinion_lease lease = PINION_LEASE_INIT;
    EXPECT_EQ(acquire(nullptr, memory.begin(), kPage, kBoth, &lease), EINVAL);
    expect_last_error({"domain is NULL"});
    EXPECT_EQ(acquire(domain_, nullptr, kPage, kBoth, &lease), EINVAL);
    expect_last_error({"empty"});
    EXPECT_EQ(acquire(domain_, memory.begin(), 0, kBoth, &lease), EINVAL);
    expect_last_error({"0 bytes"});
    for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - reinterpret_cast<std::uintptr_t>(memory.begin())}) {
      EXPECT_EQ(acquire(domain_, memory.begin(), bytes, kBoth, &lease), EINVAL);
      expect_last_error({"end of the address space"});
    }
    EXPECT_EQ(acquire(domain_, memory.begin(), kPage, 0x18, &lease), EINVAL);
    expect_last_error({"0x18", "PINION_ACCESS_REMOTE_WRITE"});
    EXPECT_EQ(acquire(domain_, memory.begin(), kPage, kBoth, nullptr), EINVAL);
    EXPECT_EQ(pinion_release(&lease), EINVAL) << "a refused acquire leaves no lease";
  }
  EXPECT_EQ(statistics().acquires, 0u);
}

TEST_F(ApiTest, ImpossibleRequestsEnterNoSum) {
  Memory memory(1), unreadable(64);
  ASSERT_EQ(::mprotect(unreadable.begin(), unreadable.bytes(), PROT_NONE), 0);
  const std::string directory = log_directory();
  for (const char* retention : {"leave-pinned", "observe"}) {
    SCOPED_TRACE(retention);
    start(std::string("device=pin,retention=") + retention + ",log=" + directory);
    const auto refused = [&](std::uintptr_t address, std::size_t bytes) {
      pinion_lease lease = PINION_LEASE_INIT;
      return pinion_acquire(domain_, reinterpret_cast<void*>(address), bytes, kBoth, &lease);
    };
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.begin());
    for (const std::uintptr_t nowhere :
         {~std::uintptr_t{0}, ~std::uintptr_t{0} - 1, std::uintptr_t{1} << 57, std::uintptr_t{1} << 58}) {
      EXPECT_EQ(refused(nowhere, 1), EINVAL) << nowhere;
      EXPECT_EQ(pinion_memory_begin(reinterpret_cast<void*>(nowhere), 1), EINVAL) << nowhere;
    }
    for (const std::size_t bytes : {std::size_t{1} << 63, std::size_t{1} << 57}) {
      EXPECT_EQ(refused(begin, bytes), EINVAL);
    }
    EXPECT_EQ(refused(begin, std::size_t{1} << 46), EFAULT) << "64 TiB";
    if (std::string_view(retention) != "observe") {
      EXPECT_EQ(refused(reinterpret_cast<std::uintptr_t>(unreadable.begin()), unreadable.bytes()), EFAULT);
    }
    use(memory.begin(), kPage);
    pinion::memory_events::lose_sight();  // an event of all memory
    EXPECT_LE(statistics().acquired_bytes, kPage + unreadable.bytes());
    EXPECT_LE(statistics().bounced_bytes, unreadable.bytes());
    TearDown();
    pinion::runlog::Log log;
    ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
    EXPECT_EQ(pinion::runlog::oracle_timeline(log).peak(), kPage);
    EXPECT_EQ(pinion::runlog::leave_pinned_timeline(log).peak(), kPage);
    EXPECT_LE(log.live.counters.leave_pinned_bytes, kPage);
    std::filesystem::remove_all(directory);
  }
}

TEST_F(ApiTest, ReleasedOnce) {
  start("retention=leave-pinned");
  Memory memory(1);
  pinion_lease lease = PINION_LEASE_INIT;
  EXPECT_EQ(pinion_release(&lease), EINVAL);
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(pinion_release(&lease), EINVAL);
  expect_last_error({"released already"});
  EXPECT_EQ(pinion_release(nullptr), EINVAL);
  struct pinion_keys k {};
  k.size = sizeof k;
  EXPECT_EQ(pinion_lease_keys(&lease, &k), EINVAL);
}

TEST_F(ApiTest, PartsOfARegistrationAreHits) {
  NEEDS_KEPT_REGISTRATIONS();  // sharing needs kept registrations
  start("retention=leave-pinned");
  Memory memory(16);
  pinion_lease whole, part;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin() + 100, 15 * kPage, PINION_ACCESS_WRITE, &whole), 0)
      << last_error();
  const auto k = keys(whole);
  EXPECT_EQ(k.address, reinterpret_cast<std::uintptr_t>(memory.begin()));
  EXPECT_EQ(k.bytes, 16 * kPage) << "whole pages";
  EXPECT_TRUE(k.access & PINION_ACCESS_WRITE);
  EXPECT_NE(k.handle, 0u);

  ASSERT_EQ(pinion_acquire(domain_, memory.page(3) + 17, 5000, PINION_ACCESS_READ, &part), 0) << last_error();
  EXPECT_EQ(keys(part).handle, k.handle);
  EXPECT_EQ(keys(part).rkey, k.rkey);
  const auto s = statistics();
  EXPECT_EQ(s.misses, 1u);
  EXPECT_EQ(s.hits, 1u);
  EXPECT_EQ(s.registrations, 1u);
  EXPECT_EQ(s.registered_bytes, 16 * kPage);
  EXPECT_EQ(s.regions, 1u);
  EXPECT_EQ(s.acquired_bytes, 15 * kPage + 5000);
  EXPECT_GT(s.registration_ns, 0u);
  EXPECT_EQ(pinion_release(&part), 0);
  EXPECT_EQ(pinion_release(&whole), 0);
}

TEST_F(ApiTest, TryAcquireNeverRegisters) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(2);
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), kPage, kBoth, &lease), EAGAIN);
  expect_last_error({"not registered"});
  EXPECT_EQ(statistics().acquires, 0u);
  EXPECT_EQ(statistics().registrations, 0u);
  use(memory.begin(), kPage);
  EXPECT_EQ(pinion_try_acquire(domain_, memory.begin(), 2 * kPage, kBoth, &lease), EAGAIN) << "half of it";
  ASSERT_EQ(pinion_try_acquire(domain_, memory.begin() + 10, 20, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(keys(lease).bytes, kPage);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(statistics().hits, 1u);
}

TEST_F(ApiTest, LeasesMoveBetweenThreadsAndPlaces) {
  start("retention=on-demand");
  Memory memory(4);
  auto lease = std::make_unique<pinion_lease>();
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, kBoth, lease.get()), 0) << last_error();
  pinion_lease moved = *lease;
  lease.reset();
  std::thread([&] { EXPECT_EQ(pinion_release(&moved), 0) << last_error(); }).join();
  EXPECT_EQ(statistics().registered_bytes, 0u) << "on-demand: let go at the last release";
  EXPECT_EQ(statistics().deregistrations, 1u);
}

TEST_F(ApiTest, ThreadsShareRegistrations) {
  start("retention=leave-pinned");
  constexpr int kThreads = 4, kUses = 5000;
  constexpr std::size_t kPages = 64;
  Memory memory(kPages);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t + 1));
      for (int i = 0; i < kUses; ++i) {
        const std::size_t first = random() % kPages, count = 1 + random() % (kPages - first);
        pinion_lease lease;
        ASSERT_EQ(pinion_acquire(domain_, memory.page(first), count * kPage, kBoth, &lease), 0)
            << last_error();
        struct pinion_keys k {};
        k.size = sizeof k;
        ASSERT_EQ(pinion_lease_keys(&lease, &k), 0);
        const auto begin = reinterpret_cast<std::uintptr_t>(memory.page(first));
        ASSERT_LE(k.address, begin);
        ASSERT_GE(k.address + k.bytes, begin + count * kPage);
        ASSERT_EQ(pinion_release(&lease), 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto s = statistics();
  EXPECT_EQ(s.acquires, static_cast<std::uint64_t>(kThreads * kUses));
  EXPECT_EQ(s.bounced, 0u);
  EXPECT_LE(s.registered_bytes, memory.bytes());
  if (pinion::test::kKept) {
    EXPECT_EQ(s.registered_peak_bytes, s.registered_bytes) << "leave-pinned only grows";
    EXPECT_GT(s.hits, s.misses);
  }
}

TEST_F(ApiTest, ReadOnlyMemoryIsForReading) {
  start("retention=leave-pinned");
  Memory memory(2);
  ASSERT_EQ(::mprotect(memory.begin(), memory.bytes(), PROT_READ), 0);
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), kPage, PINION_ACCESS_WRITE, &lease), EFAULT)
      << last_error();
  EXPECT_FALSE(last_error().empty());
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), kPage, PINION_ACCESS_READ, &lease), 0) << last_error();
  EXPECT_FALSE(keys(lease).access & PINION_ACCESS_WRITE);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(statistics().bounced, 1u);
}

TEST_F(ApiTest, MemoryWithoutAnyRights) {
  start("retention=leave-pinned");
  Memory memory(4);
  ASSERT_EQ(::mprotect(memory.page(2), kPage, PROT_NONE), 0);
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(domain_, memory.begin(), memory.bytes(), PINION_ACCESS_READ, &lease), EFAULT)
      << last_error();
  EXPECT_EQ(statistics().registered_bytes, 0u);
  EXPECT_GT(statistics().registration_failures, 0u);
  EXPECT_EQ(statistics().registered_peak_bytes, 0u) << "nothing was registered";
  EXPECT_EQ(statistics(nullptr).registered_peak_bytes, 0u);
  use(memory.begin(), 2 * kPage);
  EXPECT_EQ(statistics(nullptr).registered_peak_bytes, 2 * kPage);
}

// The kernel counts pages that neighbours share twice; both counts are in the log.
TEST_F(ApiTest, TheKernelsCountIsInTheLog) {
  NEEDS_KEPT_REGISTRATIONS();
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  constexpr std::size_t kBuffers = 256;
  Memory memory(kBuffers + 1);
  const std::uint64_t before = pinned_by_kernel();
  for (std::size_t i = 0; i < kBuffers; ++i) use(memory.page(i) + kPage / 2, kPage);
  const std::uint64_t kernel = pinned_by_kernel() - before;
  EXPECT_EQ(statistics().registered_peak_bytes, (kBuffers + 1) * kPage);
  ASSERT_EQ(pinion_stop(), 0);
  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  EXPECT_EQ(log.live.counters.registered_peak_bytes, (kBuffers + 1) * kPage);
  EXPECT_EQ(log.live.counters.kernel_pinned_peak_bytes, kernel);
  EXPECT_GE(kernel, (kBuffers + 1) * kPage);
  std::filesystem::remove_all(directory);
}

// An ordinary user: other processes and the program itself have taken most of RLIMIT_MEMLOCK.
TEST_F(ApiTest, AnOrdinaryUserFailsSeldom) {
  NEEDS_KEPT_REGISTRATIONS();
  if (kSanitized || ::geteuid() != 0) GTEST_SKIP() << "only root can become a user with a limit";
  in_child([] {
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    const rlimit limit{8 * kMiB, 8 * kMiB};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) return 1;
    const std::size_t pages = kMiB / kPage;
    Memory other(6 * pages), locked(6 * pages), memory(16 * pages);
    // A device of the same kind outside of the engine's budget stands for another process. The kernel counts
    // locks apart from pins.
    const auto others = pinion::make_pin_device();
    if (others
            ->register_range(pinion::Range::of(other.begin(), other.bytes()), pinion::Access::all,
                             pinion::Actor::application)
            .error ||
        ::mlock(locked.begin(), locked.bytes()) != 0)
      return 2;
    if (pinion_start("retention=leave-pinned") != 0) return 3;
    pinion_domain* domain = nullptr;
    if (pinion_domain_open(nullptr, nullptr, &domain) != 0) return 4;
    constexpr int kUses = 3000;
    for (int i = 0; i < kUses; ++i) {
      pinion_lease lease;
      if (pinion_acquire(domain, memory.begin() + static_cast<std::size_t>(i % 16) * kMiB, kMiB, kBoth,
                         &lease) == 0)
        pinion_release(&lease);
    }
    struct pinion_statistics s {};
    s.size = sizeof s;
    if (pinion_statistics(domain, &s) != 0 || s.acquires != kUses) return 5;
    // More is tried at intervals: by and by once a second.
    if (s.registration_failures > kUses / 10) return 6;
    return s.misses > kUses / 2 ? 0 : 7;
  });
}

TEST_F(ApiTest, ALeaseMayOutliveTheRun) {
  start("retention=leave-pinned");
  Memory memory(16);
  const std::uint64_t before = pinned_by_kernel();
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.begin(), memory.bytes(), kBoth, &lease), 0) << last_error();
  ASSERT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinned_by_kernel() - before, memory.bytes()) << "a transfer may be going on";
  EXPECT_EQ(keys(lease).bytes, memory.bytes());

  start("retention=leave-pinned");
  use(memory.begin(), kPage);
  EXPECT_EQ(statistics().misses, 1u) << "the new run knows nothing of the old lease";
  EXPECT_EQ(pinion_release(&lease), 0) << last_error();
  ASSERT_EQ(pinion_stop(), 0);
  EXPECT_EQ(pinned_by_kernel(), before);
}

}  // namespace
}  // namespace c_api_test
