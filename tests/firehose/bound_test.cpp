// The bound as the kernel counts it: at every moment, a process has at most M + MAXVICTIM bytes pinned for
// its peers, beside those that it pins for its own transfers. tests/softroce builds this test for provider
// verbs, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>

#include "device/kernel/memlock.h"
#include "support/firehose_member.h"
#include "support/processes.h"
#include "support/temporary_directory.h"

namespace pinion::firehose {
namespace {

using test::FirehoseMember;
using test::Processes;

constexpr std::size_t kBucket = std::size_t{64} << 10;
constexpr std::size_t kMemory = 8 * kBucket, kVictims = 2 * kBucket;
/// More buckets than fit, so that they move.
constexpr std::size_t kPutTo = 64 * kBucket;
constexpr std::size_t kOwn = 4 * kBucket;

std::size_t pinned_by_kernel() {
  const Memlock now = memlock();
  return now.pinned + now.locked;
}

/// Follows the bytes that the kernel has pinned for this process, beyond those at the start.
class Watch {
 public:
  std::size_t end() {
    done_ = true;
    thread_.join();
    return peak_ - base_;
  }

 private:
  const std::size_t base_ = pinned_by_kernel();
  std::atomic<bool> done_{false};
  std::size_t peak_ = base_;
  std::thread thread_{[this] {
    while (!done_) {
      peak_ = std::max(peak_, pinned_by_kernel());
      std::this_thread::sleep_for(std::chrono::microseconds(20));  // others may have this core alone
    }
  }};
};

/// Goes on until more buckets have moved than fit: while the owner is slow, puts travel as messages.
void put_at_random(const FirehoseMember& member, std::uint64_t target) {
  constexpr std::uint64_t kMoves = 4 * (kMemory + kVictims) / kBucket;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::uint64_t value = 0, random = 1;
  for (int i = 0; i < 150 || (member.statistics().moves < kMoves && std::chrono::steady_clock::now() < end);
       ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t offset = (random >> 33) % (kPutTo / sizeof value) * sizeof value;
    ASSERT_EQ(pinion_firehose_put(member.firehose, 0, target + offset, &value, sizeof value), 0);
  }
}

struct Way {
  const char* name;
  const char* sharing;
  const char* settings;
};

#ifdef PINION_TEST_OVER_VERBS
constexpr const char* kProvider = "verbs;ofi_rxm";
#else
constexpr const char* kProvider = "tcp;ofi_rxm";  // the kernel pins beside it
#endif

/// The owner, to whose memory the other process puts. It gets `own` bytes into memory of its own before.
void watch_the_owner(const FirehoseMember& member, std::uint64_t other, std::size_t own) {
  Watch watch;
  char* const mine = test::map_memory(kOwn);
  if (own > 0) {
    ASSERT_EQ(pinion_firehose_get(member.firehose, 1, other, mine, own), 0);
  }
  member.barrier();
  member.barrier();
  const std::size_t peak = watch.end();
  if (peak == 0) ::_exit(Processes::kSkipped);
  EXPECT_GT(member.statistics().unpins, 0u) << "no bucket has moved";
  EXPECT_LE(member.statistics().exposed_peak_bytes, kMemory + kVictims);
  EXPECT_LE(peak, kMemory + kVictims + own);
  if (own > 0) {
    EXPECT_GT(peak, kMemory + kVictims) << "the watch misses what exceeds the bound";
  }
}

void run(const Way& way, std::size_t own) {
  TemporaryDirectory directory;
  Processes both(2, [&](unsigned process) {
    pinion_firehose_options options{};
    options.bucket = kBucket;
    options.memory = kMemory;
    options.victims = kVictims;
    options.sharing = way.sharing;
    FirehoseMember member(kProvider, directory.path(), process, 2, options, way.settings);
    char* const memory = test::map_memory(kPutTo);
    std::memset(memory, 1, kPutTo);
    const auto all = member.exchange(memory);
    if (process == 0) return watch_the_owner(member, all[1], own);
    member.barrier();
    put_at_random(member, all[0]);
    member.barrier();
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider, or pins nothing";
}

class FirehoseBound : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(EachSharing, FirehoseBound,
                         ::testing::Values(Way{"lending", "lending", "retention=leave-pinned"},
                                           Way{"static_share", "static", "retention=leave-pinned"},
                                           Way{"on_demand", "static", "retention=on-demand"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(FirehoseBound, HoldsAtEveryMoment) { run(GetParam(), 0); }

// Memory of the process's own transfers is registered under its limit, and counts beside the bound.
TEST(FirehoseBoundBeside, OwnTransfersCount) { run({"", "static", "retention=leave-pinned"}, kOwn); }

}  // namespace
}  // namespace pinion::firehose
