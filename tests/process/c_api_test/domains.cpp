// Domains: opened, closed, limited by their devices, and their ledgers.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fixture.h"
#include "process/engine.h"
#include "runlog/analysis.h"
#include "runlog/reader.h"
#include "support/kept_registrations.h"
#include "support/resident_memory.h"
#include "support/sanitizers.h"

namespace c_api_test {
namespace {

// ---- domains ----

TEST_F(ApiTest, DomainErrors) {
  start("retention=lru");
  pinion_domain* domain = nullptr;
  EXPECT_EQ(pinion_domain_open("toaster", nullptr, &domain), EINVAL);
  expect_last_error({"toaster", "pin", "emulated"});
  EXPECT_EQ(pinion_domain_open("emulated", "abacus", &domain), EINVAL);
  expect_last_error({"abacus", "connectx"});
  EXPECT_EQ(pinion_domain_open(nullptr, nullptr, nullptr), EINVAL);
  EXPECT_EQ(pinion_domain_close(nullptr), EINVAL);
  EXPECT_EQ(domain, nullptr);
}

TEST_F(ApiTest, ClosingLetsEverythingIdleGo) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  Memory memory(32);
  const std::uint64_t before = pinned_by_kernel();
  use(memory.page(0), 16 * kPage);
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, memory.page(16), 16 * kPage, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(pinned_by_kernel() - before, 32 * kPage);

  EXPECT_EQ(pinion_domain_close(domain_), EBUSY);
  expect_last_error({"1 region", "release"});
  EXPECT_EQ(statistics().registered_bytes, 16 * kPage) << "what was idle is gone";
  EXPECT_EQ(pinned_by_kernel() - before, 16 * kPage);
  use(memory.page(16), kPage);
  EXPECT_EQ(statistics().hits, 1u) << "still open";

  ASSERT_EQ(pinion_release(&lease), 0);
  close(domain_);
  EXPECT_EQ(pinned_by_kernel(), before);
  EXPECT_EQ(statistics(nullptr).registered_bytes, 0u);
}

TEST_F(ApiTest, DomainsOpenAndCloseForEver) {
  start("retention=helper,minimum-gain=0");
  Memory memory(4);
  for (int i = 0; i < 50; ++i) {
    pinion_domain* domain = open(i % 2 ? "pin" : "emulated", "none");
    EXPECT_EQ(statistics(domain).acquires, 0u) << "counted from the opening on";
    EXPECT_EQ(statistics(domain).registered_peak_bytes, 0u);
    pinion_lease lease;
    ASSERT_EQ(pinion_acquire(domain, memory.begin(), memory.bytes(), kBoth, &lease), 0) << last_error();
    ASSERT_EQ(pinion_release(&lease), 0);
    const auto s = statistics(domain);
    EXPECT_EQ(s.acquires, 1u);
    EXPECT_EQ(s.misses, 1u) << "nothing of an earlier domain is left";
    EXPECT_EQ(s.registered_peak_bytes, memory.bytes());
    close(domain);
  }
}

TEST_F(ApiTest, DomainsComeAndGoWhileOthersTransfer) {
  start("retention=helper,minimum-gain=0,poll=100us");
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (unsigned t = 0; t < 2; ++t) {
    others.emplace_back([&, t] {
      Memory memory(32);
      std::minstd_rand random(t + 1);
      while (!done) {
        const std::size_t first = random() % 32, count = 1 + random() % (32 - first);
        pinion_lease lease;
        ASSERT_EQ(pinion_acquire(domain_, memory.page(first), count * kPage, kBoth, &lease), 0)
            << last_error();
        ASSERT_EQ(pinion_release(&lease), 0);
        if (random() % 16 == 0) ::madvise(memory.page(first), kPage, MADV_DONTNEED);
      }
    });
  }
  Memory memory(8);
  for (int i = 0; i < 200; ++i) {
    pinion_domain* domain = open(nullptr, i % 2 ? "none" : "connectx");
    pinion_lease lease;
    ASSERT_EQ(pinion_acquire(domain, memory.begin(), memory.bytes(), kBoth, &lease), 0) << last_error();
    EXPECT_EQ(pinion_domain_close(domain), EBUSY);
    ASSERT_EQ(pinion_release(&lease), 0);
    close(domain);
  }
  done = true;
  for (auto& thread : others) thread.join();
  EXPECT_GT(statistics().acquires, 0u);
  close(domain_);
  EXPECT_EQ(statistics(nullptr).registered_bytes, 0u);
}

TEST_F(ApiTest, MoreDomainsThanAProcessCanHave) {
  start("retention=lru");
  std::vector<pinion_domain*> domains;
  pinion_domain* domain = nullptr;
  while (domains.size() < 100 && pinion_domain_open(nullptr, nullptr, &domain) == 0)
    domains.push_back(domain);
  EXPECT_GE(domains.size(), 8u);
  EXPECT_LT(domains.size(), 100u);
  EXPECT_EQ(pinion_domain_open(nullptr, nullptr, &domain), ENOSPC);
  for (pinion_domain* open : domains) EXPECT_EQ(pinion_domain_close(open), 0) << last_error();
  open();
}

TEST_F(ApiTest, DomainsHaveRegistrationsOfTheirOwn) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  pinion_domain* other = open("emulated", "none");
  Memory memory(4);
  use(memory.begin(), memory.bytes());
  pinion_lease lease;
  EXPECT_EQ(pinion_try_acquire(other, memory.begin(), kPage, kBoth, &lease), EAGAIN);
  ASSERT_EQ(pinion_acquire(other, memory.begin(), kPage, kBoth, &lease), 0) << last_error();
  EXPECT_EQ(statistics(other).misses, 1u);
  EXPECT_EQ(statistics(other).registered_bytes, kPage);
  EXPECT_EQ(statistics().registered_bytes, 4 * kPage);
  EXPECT_EQ(statistics(nullptr).misses, 2u);
  EXPECT_EQ(statistics(nullptr).registered_bytes, 5 * kPage);
  EXPECT_EQ(pinion_release(&lease), 0);
}

// One buffer in five domains is pinned five times: in the counters, and in the report of the log.
TEST_F(ApiTest, FiguresAreSumsOverDomains) {
  NEEDS_KEPT_REGISTRATIONS();
  constexpr std::size_t kDomains = 5;
  const std::string directory = log_directory();
  start("retention=leave-pinned,log=" + directory);
  Memory memory(16);
  std::vector<pinion_lease> leases(kDomains);
  for (std::size_t i = 0; i < kDomains; ++i) {
    pinion_domain* const domain = i == 0 ? domain_ : open();
    ASSERT_EQ(pinion_acquire(domain, memory.begin(), memory.bytes(), kBoth, &leases[i]), 0) << last_error();
  }
  EXPECT_EQ(statistics(nullptr).registered_bytes, kDomains * memory.bytes());
  for (pinion_lease& lease : leases) EXPECT_EQ(pinion_release(&lease), 0);
  ASSERT_EQ(pinion_stop(), 0);

  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  EXPECT_EQ(log.live.counters.registered_peak_bytes, kDomains * memory.bytes());
  EXPECT_EQ(log.live.counters.leave_pinned_bytes, kDomains * memory.bytes());
  const pinion::runlog::RegisteredBytes bytes = pinion::runlog::analyse({log}).registered();
  EXPECT_EQ(bytes.peak, kDomains * memory.bytes());
  EXPECT_EQ(bytes.oracle_peak, kDomains * memory.bytes());
  EXPECT_EQ(bytes.leave_pinned_peak, kDomains * memory.bytes());
  std::filesystem::remove_all(directory);
}

// UCX registers a pool in a thread of its own, and deregisters it in the one that ends the program.
TEST_F(ApiTest, ALeaseThatAnotherThreadReturnsIsInTheLedgerOnce) {
  NEEDS_KEPT_REGISTRATIONS();
  const NicFile nic("register_ns_base=20000000\n");
  const std::string directory = log_directory();
  start("retention=helper,minimum-gain=0,device=emulated,nic=" + nic.path + ",log=" + directory);
  Memory memory(8);
  use(memory.page(0), kPage);
  use(memory.page(2), kPage);
  pinion_lease pool = PINION_LEASE_INIT;
  std::thread([&] {
    ASSERT_EQ(pinion_acquire(domain_, memory.page(4), kPage, kBoth, &pool), 0) << last_error();
  }).join();
  EXPECT_EQ(pinion_release(&pool), 0);
  close(domain_);
  ASSERT_EQ(pinion_stop(), 0);
  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  EXPECT_GT(log.live.counters.registration_ns, 50'000'000u);
  EXPECT_GT(log.live.counters.budget_on_threads_ns, -10'000'000) << "leave-pinned waited, and so did this";
  std::filesystem::remove_all(directory);
}

// The first domain's device is small, the second's is large.
TEST_F(ApiTest, CapsOfADeviceBoundItsDomainOnly) {
  NEEDS_KEPT_REGISTRATIONS();
  const NicFile nic("max_regions=2\nmax_bytes=1M\nmax_region_bytes=64K\n");
  const std::string directory = log_directory();
  start("retention=leave-pinned,device=emulated,nic=" + nic.path + ",log=" + directory);
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  ASSERT_EQ(pinion_limits(&limits), 0);
  EXPECT_GT(limits.bytes, std::uint64_t{1} << 20);
  EXPECT_EQ(limits.regions, UINT64_MAX);

  pinion_domain* const small = domain_;
  pinion_domain* const large = open("pin");
  Memory memory(4096);
  for (int i = 0; i < 6; ++i) {
    domain_ = small;
    use(memory.page(16u * i), kPage);
    domain_ = large;
    use(memory.page(16u * i), kPage);
  }
  use(memory.begin(), memory.bytes());
  EXPECT_EQ(statistics(small).regions, 2u);
  EXPECT_EQ(statistics(small).bounced, 0u);
  EXPECT_EQ(statistics(large).registered_bytes, memory.bytes());
  pinion_lease lease;
  EXPECT_EQ(pinion_acquire(small, memory.begin(), 64 * 1024 + kPage, kBoth, &lease), EFBIG) << last_error();
  ASSERT_EQ(pinion_stop(), 0);

  pinion::runlog::Log log;
  ASSERT_NO_FATAL_FAILURE(read_only_log(directory, log));
  ASSERT_EQ(log.domains.size(), 3u) << "with the engine's own";
  EXPECT_STREQ(log.domains[1].device, "emulated");
  EXPECT_EQ(log.domains[1].nic, nic.path.substr(0, sizeof log.domains[1].nic - 1));
  EXPECT_EQ(log.domains[1].max_regions, 2u);
  EXPECT_EQ(log.domains[1].max_bytes, 1u << 20);
  EXPECT_STREQ(log.domains[2].device, "pin");
  EXPECT_STREQ(log.domains[2].nic, "");
  EXPECT_NE(log.domains[2].description[0], '\0');
  const pinion::runlog::DomainState &first = log.live.domains[1], &second = log.live.domains[2];
  EXPECT_EQ(first.registered_peak_bytes, 2 * kPage);
  EXPECT_EQ(first.acquires, 7u);
  EXPECT_EQ(first.bounced, 1u);
  EXPECT_EQ(second.acquires, 7u);
  EXPECT_EQ(second.registered_peak_bytes, memory.bytes());
  EXPECT_EQ(second.registered_now_bytes, 0u) << "all was let go at the end";
  // The parts make the whole.
  const pinion::runlog::Counters& all = log.live.counters;
  EXPECT_EQ(first.registrations + second.registrations, all.registrations);
  EXPECT_GT(first.registered_byte_ns, 0);
  EXPECT_NEAR(first.registered_byte_ns + second.registered_byte_ns, all.registered_byte_ns,
              1e-3 * all.registered_byte_ns);
  EXPECT_EQ(pinion::runlog::analyse({log}).domains.size(), 3u);
  std::filesystem::remove_all(directory);
}

// The limit is the process's: a domain that holds all of it idle makes room for another.
TEST_F(ApiTest, DomainsMakeRoomForEachOther) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned,limit=1M,limit-regions=4");
  pinion_domain *const first = domain_, *const second = open();
  Memory memory(512);
  const std::size_t quarter = (1u << 20) / 4;
  for (int i = 0; i < 4; ++i) use(memory.begin() + 2 * i * quarter, quarter);
  EXPECT_EQ(statistics(first).registered_bytes, 1u << 20);

  pinion_lease leases[3];
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(pinion_acquire(second, memory.begin() + 2 * i * quarter, quarter, kBoth, &leases[i]), 0)
        << last_error();
  EXPECT_EQ(statistics(second).registered_bytes, 3 * quarter);
  EXPECT_EQ(statistics(first).registered_bytes, quarter);
  EXPECT_EQ(statistics(nullptr).registered_peak_bytes, 1u << 20);

  // A request too large to fit beside the leases evicts nothing.
  pinion_lease more;
  EXPECT_EQ(pinion_acquire(second, memory.begin() + 6 * quarter, 2 * quarter, kBoth, &more), ENOMEM);
  expect_last_error({"limited to 1 MiB", "--limit"});
  EXPECT_EQ(statistics(first).registered_bytes, quarter);
  for (pinion_lease& lease : leases) EXPECT_EQ(pinion_release(&lease), 0);
}

namespace {

std::size_t thread_contexts() {
  std::size_t count = 0;
  for (const pinion::ThreadContext* thread = pinion::all_threads(); thread; thread = thread->next) ++count;
  return count;
}

}  // namespace

TEST_F(ApiTest, ThreadsThatComeAndGoHaveTheirContextsInTurn) {
  start("retention=leave-pinned,device=pin");
  Memory memory(1);
  use(memory.begin(), kPage);
  const std::size_t before = thread_contexts();
  for (int i = 0; i < 1000; ++i) std::thread([&] { use(memory.begin(), kPage); }).join();
  EXPECT_LE(thread_contexts(), before + 1);
  EXPECT_EQ(statistics().acquires, 1001u);
}

TEST_F(ApiTest, RunsLeaveNoMemoryBehind) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep freed memory for a while";
  Memory memory(4);
  const auto runs = [&](int count) {
    for (int run = 0; run < count; ++run) {
      start("retention=helper,device=pin");
      for (int i = 0; i < 20; ++i) use(memory.page(i % 3), 2 * kPage);
      TearDown();
    }
  };
  runs(20);
  // malloc may begin an arena for a new helper thread at any time; a leak shows in every series.
  constexpr int kSeries = 4, kRuns = 50;
  double least = 1e9;
  for (int series = 0; series < kSeries; ++series) {
    const std::size_t before = pinion::test::resident_bytes();
    runs(kRuns);
    least = std::min(least, double(pinion::test::resident_bytes()) - double(before));
  }
  std::printf("%.1f KiB a run\n", least / 1024 / kRuns);
  // The engine itself, 2 KiB, stays: threads and hooks may be inside it.
  EXPECT_LT(least, kRuns * 2 * double(kPage));
}

}  // namespace
}  // namespace c_api_test
