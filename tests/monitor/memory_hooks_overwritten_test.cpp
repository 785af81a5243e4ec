// Another library writes over the engine's hooks while registrations are kept, as UCX does when it is loaded
// late: later memory events are missed, and yet no transfer may go astray. Checked by contents, on a device
// that keeps the pages it has pinned (support/ring_device.h).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "monitor/libc_hooks.h"
#include "monitor/memory_events.h"
#include "monitor/system_call.h"
#include "support/foreign_patcher.h"
#include "support/gate.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::uint64_t kOld = 1, kNew = 2;
constexpr std::size_t kPages = 8;

/// Their munmap: the kernel's, by a system call that nobody sees.
int unseen_munmap(void* address, std::size_t length) {
  const long result = raw_system_call(SYS_munmap, arguments_of(address, length));
  if (!is_error(result)) return 0;
  errno = static_cast<int>(-result);
  return -1;
}
void* pointer(Address address) { return reinterpret_cast<void*>(address); }

class OverwrittenHooks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
    ring_ = std::make_unique<TransferEngine>(TransferEngine::options(RetentionKind::leave_pinned));
    other_ = std::make_unique<ForeignPatcher>();
    memory_ = map();
    fill(memory_, kOld);
  }
  void TearDown() override {
    gate_.open();
    other_.reset();
    ring_.reset();
  }

  static Range map(Address wish = 0, std::size_t bytes = kPages * page_size()) {
    void* const start =
        ::mmap(pointer(wish), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(start, MAP_FAILED);
    return Range::of(start, bytes);
  }
  static ForeignPatch their_munmap() { return absolute_jump(reinterpret_cast<void*>(unseen_munmap)); }
  /// Other memory at the same place, without an event: the unmapping is unseen, and mapping into a gap is not
  /// an event.
  static void replace_unseen(Range memory) {
    ASSERT_EQ(unseen_munmap(pointer(memory.begin), memory.bytes()), 0);
    ASSERT_EQ(map(memory.begin, memory.bytes()), memory);
    fill(memory, kNew);
  }
  RingDevice& device() { return ring_->device(); }
  void expect_contents(Range memory, std::uint64_t stamp) {
    expect_transfers(*ring_, ring_->acquire(memory), wire_, memory, stamp);
  }
  /// The memory stays registered after a transfer again.
  void expect_kept_again() {
    const Range other = map();
    ring_->acquire(other).release();
    const std::size_t before = device().registrations(Actor::application);
    ring_->acquire(other).release();
    EXPECT_EQ(device().registrations(Actor::application), before);
    ASSERT_EQ(::munmap(pointer(other.begin), other.bytes()), 0);
  }

  Range memory_;
  Gate gate_;
  std::atomic<TransferDevice::Moment> stop_at_{};
  std::atomic<Address> stop_in_{0};
  Wire wire_{kPages * page_size()};
  std::unique_ptr<TransferEngine> ring_;
  std::unique_ptr<ForeignPatcher> other_;
};

TEST_F(OverwrittenHooks, TheNextHitIsNotStale) {
  ring_->acquire(memory_).release();
  other_->write(their_munmap());
  ASSERT_FALSE(hooks_intact());
  ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0);  // goes to them alone
  ASSERT_EQ(map(memory_.begin), memory_);
  fill(memory_, kNew);
  expect_contents(memory_, kNew);
  if (!ring_->keeps()) return;  // with an incomplete monitor the hooks are left alone
  EXPECT_TRUE(hooks_intact()) << "ours are on top again";
  expect_kept_again();
}

TEST_F(OverwrittenHooks, WhileTheyMayBe) {
  ring_->acquire(memory_).release();
  other_->open();
  // They may have overwritten any hook by now, and put it back before we look.
  replace_unseen(memory_);
  expect_contents(memory_, kNew);
  // Transfers go on as ever; nothing of them is kept.
  for (int i = 0; i < 3; ++i) {
    replace_unseen(memory_);
    expect_contents(memory_, kNew);
    EXPECT_EQ(device().live(memory_), 0u);
  }
  other_->close();
  expect_contents(memory_, ~kNew);
  if (ring_->keeps()) expect_kept_again();
}

TEST_F(OverwrittenHooks, ALeaseFromBeforeServesItsHolderAlone) {
  TransferLease lease = ring_->acquire(memory_);
  other_->open();
  expect_transfers(*ring_, ring_->acquire(memory_), wire_, memory_, kOld);
  std::memset(wire_.data(), 0, memory_.bytes());
  EXPECT_EQ(device().send(lease.key(), memory_, wire_, 0), 0);
  EXPECT_TRUE(holds(wire_.as<std::uint64_t>(), memory_, ~kOld));
  other_->close();
  lease.release();
}

TEST_F(OverwrittenHooks, LeasesShareNothingMeanwhile) {
  other_->open();
  TransferLease whole = ring_->acquire(memory_);
  // A part that the holder of the whole transfers no more.
  const Range part{memory_.begin, memory_.begin + 2 * page_size()};
  replace_unseen(part);
  expect_contents(part, kNew);
  // A larger one stays separate from the others' registrations, too.
  TransferLease again = ring_->acquire(part);
  const Range overlap{part.begin + page_size(), memory_.end};
  TransferLease larger = ring_->acquire(overlap);
  again.release();
  ASSERT_EQ(unseen_munmap(pointer(part.begin), page_size()), 0);
  ASSERT_EQ(map(part.begin, page_size()), (Range{part.begin, part.begin + page_size()}));
  fill({part.begin, part.begin + page_size()}, kNew);
  expect_contents({part.begin, part.begin + page_size()}, kNew);
  other_->close();
}

TEST_F(OverwrittenHooks, ARegistrationThatTheyInterruptIsNotKept) {
  if (!ring_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  // Set once: the helper calls it too, when it deregisters interrupted regions.
  device().at = [this](TransferDevice::Moment now, Range pages, Actor) {
    if (now == stop_at_ && pages.begin == stop_in_) gate_.pass();
  };
  for (const auto moment : {TransferDevice::Moment::registering, TransferDevice::Moment::registered}) {
    const Range memory = map();
    stop_at_ = moment;
    stop_in_ = memory.begin;
    gate_.arm();
    std::thread side([&] { ring_->acquire(memory).release(); });
    EXPECT_TRUE(gate_.wait_reached()) << "the acquire has not called the device";
    other_->write(their_munmap());
    gate_.open();
    side.join();
    // Theirs, unless the helper has put ours on top again.
    ASSERT_EQ(::munmap(pointer(memory.begin), memory.bytes()), 0);
    ASSERT_EQ(map(memory.begin), memory);
    fill(memory, kNew);
    expect_contents(memory, kNew);
    EXPECT_TRUE(hooks_intact());
  }
}

/// A patcher that is slow stops at each of these, while transfers go on and the helper looks.
enum class Stage { opened, half_written, held, held_and_closed, opened_again };

class SlowPatcher : public OverwrittenHooks, public ::testing::WithParamInterface<Stage> {
 protected:
  /// Patches as UCX does: threads are kept out while the rest is written.
  void patch_until(Stage stage) {
    const ForeignPatch whole = their_munmap();
    ForeignPatch part = other_->read();
    other_->open();
    if (stage == Stage::opened) return;
    if (stage == Stage::half_written) {
      std::copy(whole.begin() + 8, whole.end(), part.begin() + 8);  // not the entry yet
      return other_->overwrite(part);
    }
    part[0] = 0xeb;  // jmp to itself
    part[1] = 0xfe;
    other_->overwrite(part);
    if (stage == Stage::held) return;
    other_->close();
    if (stage == Stage::opened_again) other_->open();
  }
  void patch_the_rest() {
    other_->open();
    other_->overwrite(their_munmap());
    other_->close();
  }
};

TEST_P(SlowPatcher, SightComesBackWhenItIsDone) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the stages are of x86-64";
#endif
  if (!ring_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  ring_->acquire(memory_).release();
  patch_until(GetParam());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(memory_events::regain_sight(*memory_events::monitor())) << "given up for a passing reason";
    EXPECT_TRUE(memory_events::brackets().sight.blind());
    ring_->acquire(memory_).release();
    EXPECT_EQ(device().live(memory_), 0u);
  }
  patch_the_rest();
  ASSERT_EQ(::munmap(pointer(memory_.begin), memory_.bytes()), 0);
  ASSERT_EQ(map(memory_.begin), memory_);
  fill(memory_, kNew);
  expect_contents(memory_, kNew);
  EXPECT_TRUE(hooks_intact());
  expect_kept_again();
}

INSTANTIATE_TEST_SUITE_P(, SlowPatcher,
                         ::testing::Values(Stage::opened, Stage::half_written, Stage::held,
                                           Stage::held_and_closed, Stage::opened_again));

/// Another library patches again as soon as our hooks have been repaired, `times` in all.
class PatchedAgain final : public MemoryMonitor {
 public:
  PatchedAgain(MemoryMonitor& real, const ForeignPatcher& other, const ForeignPatch& theirs, int times)
      : real_(real), other_(other), theirs_(theirs), times_(times) {}
  const char* name() const override { return real_.name(); }
  std::vector<const char*> blind_spots() const override { return {}; }
  HookReport start(const HookCallbacks&) override { return complete_report(); }
  void stop() override {}
  HookReport self_test() override { return real_.self_test(); }
  bool intact() const override { return real_.intact(); }
  bool exposed() const override { return real_.exposed(); }
  HookReport repair() override {
    HookReport report = real_.repair();
    if (times_ == 0) return report;
    --times_;
    other_.write(theirs_);
    // What a report says that is written now.
    report.complete = false;
    report.error = Error::make(EBUSY, "munmap: patched over by other code since");
    return report;
  }

 private:
  MemoryMonitor& real_;
  const ForeignPatcher& other_;
  const ForeignPatch theirs_;
  int times_;
};

TEST_F(OverwrittenHooks, WhileWeRepairThem) {
  if (!ring_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  MemoryMonitor& real = *memory_events::monitor();
  PatchedAgain monitor(real, *other_, their_munmap(), 3);
  other_->write(their_munmap());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(memory_events::regain_sight(monitor));
  EXPECT_FALSE(memory_events::regain_sight(monitor));
  EXPECT_FALSE(memory_events::brackets().sight.blind());
  EXPECT_TRUE(hooks_intact());
  expect_kept_again();
}

TEST_F(OverwrittenHooks, TheirWriteIsNotShutOutByOurs) {
  if (!ring_->keeps()) GTEST_SKIP() << "nothing is kept here beyond its lease";
  other_->open();
  // Ours closes the page when it is done, and would end the process in their write.
  const HookReport report = reinstall_hooks();
  other_->overwrite(their_munmap());
  const HookReport again = reinstall_hooks();
  EXPECT_FALSE(again.complete);
  EXPECT_EQ(again.error.code, EAGAIN) << again.error.message;
  other_->overwrite(their_munmap());
  other_->close();
  EXPECT_TRUE(reinstall_hooks().complete);
  EXPECT_TRUE(report.complete);
}

TEST_F(OverwrittenHooks, MappedOver) {
  ring_->acquire(memory_).release();
  // A copy of the page over the page: some patchers write to the copy before.
  const Range page = Range::of(other_->entry(), 1).to_pages();
  const Range copy = map(0, page.bytes());
  std::memcpy(pointer(copy.begin), pointer(page.begin), page.bytes());
  ASSERT_EQ(::mprotect(pointer(copy.begin), copy.bytes(), PROT_READ | PROT_EXEC), 0);
  const ForeignPatch ours = other_->read();
  ASSERT_EQ(::mremap(pointer(copy.begin), copy.bytes(), copy.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                     pointer(page.begin)),
            pointer(page.begin));
  EXPECT_EQ(other_->read(), ours);
  replace_unseen(memory_);
  expect_contents(memory_, kNew);
}

}  // namespace
}  // namespace pinion::test
