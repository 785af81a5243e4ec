// Random programs against the helper in virtual time: under all operations and failures leased memory is
// registered, the limit holds, the queue is in order, and the end is empty.
#include <gtest/gtest.h>

#include <random>

#include "support/sanitizers.h"
#include "support/virtual_helper.h"

namespace pinion {
namespace {

using test::virtual_pages;
using test::VirtualHelper;

class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed), helper_(settings()) {
    if (chance(0.5)) helper_.device().fail_every(2 + below(30), ENOMEM);
    helper_.after_each = [this] { check(); };
    const auto threads = static_cast<std::uint16_t>(1 + below(3));
    for (std::uint16_t thread = 0; thread < threads; ++thread) write_program(thread);
    const Duration length = kTransfers * kMillisecond;
    for (std::size_t i = below(40); i > 0; --i) {
      const Time time = kSecond + static_cast<Time>(below(static_cast<std::size_t>(length)));
      const Range range = virtual_pages(below(kBuffers) * kPagesApart, 1 + below(2 * kPagesApart));
      helper_.at(time, [this, range] { helper_.change_memory(range); });
    }
  }

  void run() {
    helper_.run();
    EXPECT_EQ(helper_.served().size(), written_);
    // No use comes any more: regions kept for one are let go in the end.
    const Duration ran = helper_.now() - kSecond;
    helper_.run_until(helper_.now() + 100 * ran + 10 * kSecond);
    EXPECT_EQ(helper_.registered().now(), 0u);
    helper_.finish();
    EXPECT_EQ(helper_.device().live_regions(), 0u);
    EXPECT_EQ(helper_.budget().bytes(), 0u);
    EXPECT_EQ(helper_.budget().regions(), 0u);
    EXPECT_EQ(helper_.domain().region_count(), 0u);
  }

  /// A hash of all that happened.
  std::uint64_t digest() const {
    std::uint64_t digest = 1;
    const auto add = [&](auto value) {
      digest = (digest ^ static_cast<std::uint64_t>(value)) * 0x100000001B3;
    };
    for (const auto& call : helper_.device_calls()) {
      add(call.begin), add(call.end), add(call.pages.begin), add(call.pages.end);
      add(call.registration), add(call.failed), add(call.actor);
    }
    for (const auto& served : helper_.served()) add(served.asked), add(served.leased), add(served.outcome);
    return digest;
  }
  std::size_t transfers() const { return written_; }
  const VirtualHelper& helper() const { return helper_; }

 private:
  static constexpr std::size_t kBuffers = 30, kPagesApart = 64;
  static constexpr std::size_t kTransfers = 1000;  // at least, of a thread

  std::size_t below(std::size_t n) { return random_() % n; }
  bool chance(double p) { return static_cast<double>(random_() % 1000) < p * 1000; }

  VirtualHelper::Settings settings() {
    VirtualHelper::Settings settings;
    settings.window = static_cast<unsigned>(below(4));
    settings.own_core = chance(0.5);
    if (chance(0.5)) settings.limit = limit_ = (1 + below(200)) * page_size();
    if (chance(0.3)) settings.ring = 1 + below(8);
    if (chance(0.5)) settings.poll = static_cast<Duration>(1 + below(kMillisecond));
    const auto latest = static_cast<std::size_t>(1 + below(300 * kMicrosecond));
    settings.wake_latency = [this, latest] { return static_cast<Duration>(below(latest)); };
    return settings;
  }

  // Phases of nested loops over a few transfers each, with jitter.
  void write_program(std::uint16_t thread) {
    for (std::size_t n = 0; n < kTransfers;) {
      std::vector<VirtualHelper::Transfer> body;
      for (std::size_t i = 1 + below(6); i > 0; --i) {
        VirtualHelper::Transfer transfer;
        transfer.thread = thread;
        transfer.site = 1 + below(20);
        // Buffers next to each other, within each other and across each other.
        const std::size_t first = below(kBuffers) * kPagesApart + (chance(0.2) ? below(kPagesApart) : 0);
        transfer.range = virtual_pages(first, 1 + below(chance(0.1) ? 3 * kPagesApart : kPagesApart));
        transfer.range.begin += below(page_size());
        transfer.compute = static_cast<Duration>(1000 + below(chance(0.5) ? 100000 : 20000000));
        transfer.duration = static_cast<Duration>(below(100000));
        transfer.blocking = chance(0.7);
        transfer.access = chance(0.5) ? Access::read : Access::write;
        body.push_back(transfer);
      }
      const double jitter = chance(0.5) ? 0 : 0.2;
      for (std::size_t turns = 1 + below(40); turns > 0; --turns) {
        for (VirtualHelper::Transfer transfer : body) {
          const double factor = 1 + jitter * static_cast<double>(below(1000)) / 1000;
          transfer.compute = static_cast<Duration>(factor * static_cast<double>(transfer.compute));
          helper_.add(transfer);
          ++written_, ++n;
        }
      }
    }
  }

  void check() {
    helper_.for_each_lease([&](Range leased, const Region& region) {
      ASSERT_TRUE(region.range().contains(leased));
      ASSERT_TRUE(helper_.device().is_live(region.key));
    });
    ASSERT_LE(helper_.registered().now(), limit_);
    Time before = 0;
    helper_.retention().queue().for_each([&](const auto& item) {
      ASSERT_GE(item.deadline - item.service, before);
      before = item.deadline;
    });
  }

  std::mt19937_64 random_;
  std::uint64_t limit_ = UINT64_MAX;
  std::size_t written_ = 0;
  VirtualHelper helper_;
};

TEST(RetentionProperties, HoldForRandomPrograms) {
  std::size_t transfers = 0, ahead = 0, bounced = 0, failed = 0;
  // A sanitizer runs fewer of the same programs.
  const std::size_t enough = kSanitized ? 30000 : 100000;
  for (std::uint64_t seed = 1; transfers < enough && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomProgram program(seed);
    program.run();
    transfers += program.transfers();
    // The cases that matter must occur:
    ahead += program.helper().calls(true, Actor::helper);
    for (const auto& served : program.helper().served())
      bounced += served.outcome == runlog::Outcome::bounced;
    for (const auto& call : program.helper().device_calls()) failed += call.failed;
  }
  EXPECT_GT(ahead, 1000u);
  EXPECT_GT(bounced, 100u);
  EXPECT_GT(failed, 100u);
}

TEST(RetentionProperties, EqualProgramsRunEqually) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    RandomProgram one(seed), two(seed);
    one.run();
    two.run();
    EXPECT_EQ(one.digest(), two.digest()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace pinion
