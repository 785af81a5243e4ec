// Forks with a device whose library has fork handlers of its own: its regions go before these, or stay.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <vector>

#include "process/engine.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

constexpr std::size_t kBytes = 100'000;

/// The device that a fork handler looks at, which was added later than the engine's, and so runs before it.
std::atomic<test::FakeDevice*> g_device{nullptr};
std::atomic<std::size_t> g_live_at_fork{0};

class ForkTest : public ::testing::Test {
 protected:
  virtual void equip(test::FakeDevice& device) { device.byte_ranges = device.locks_at_fork = true; }
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "no threads after a fork";
    Options options;
    options.retention = RetentionKind::leave_pinned;
    options.device = kAutoDevice;
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
    auto device = std::make_unique<test::FakeDevice>();
    equip(*device);
    g_device = device_ = device.get();
    Error refused;
    domain_ = Engine::running()->domains().add(std::move(device), refused);
    ASSERT_GE(domain_, 0) << refused.message;
    static const int handler =
        ::pthread_atfork([] { g_live_at_fork = g_device.load()->live(); }, nullptr, nullptr);
    ASSERT_EQ(handler, 0);
    memory_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    Engine::stop();
    ::munmap(memory_, kBytes);
  }

  LeasePath& lease_path() { return Engine::running()->lease_path(); }
  void acquire(Transfer& transfer) { acquire(part(), transfer); }
  void acquire(Range range, Transfer& transfer) {
    ASSERT_TRUE(
        lease_path().lease(*this_thread(), domain_, {}, range, Access::read, transfer, Refusal::report));
  }
  void release(Transfer& transfer) { lease_path().release(*this_thread(), transfer); }
  void use() {
    Transfer transfer;
    acquire(transfer);
    release(transfer);
  }
  Range part() const {
    return {reinterpret_cast<Address>(memory_) + 100, reinterpret_cast<Address>(memory_) + kBytes};
  }
  bool gate_is_closed() { return Engine::running()->retirement().fork_gate().is_closed(); }

  test::FakeDevice* device_ = nullptr;
  int domain_ = -1;
  void* memory_ = nullptr;
};

TEST_F(ForkTest, RegionsGoBeforeAnyHandlerIfTheForkIsMetByName) {
  use();
  ASSERT_EQ(device_->live(), 1u);
  Engine::before_fork();
  EXPECT_TRUE(gate_is_closed());
  test::in_child([] {
    Engine::after_fork();
    EXPECT_EQ(Engine::running(), nullptr);
  });
  Engine::after_fork();
  EXPECT_EQ(g_live_at_fork, 0u);
  EXPECT_FALSE(gate_is_closed());
  use();
  EXPECT_EQ(device_->live(), 1u);
}

TEST_F(ForkTest, BetweenHandlersTheDeviceIsLeftAlone) {
  use();
  test::in_child([] { EXPECT_EQ(Engine::running(), nullptr); });
  EXPECT_EQ(g_live_at_fork, 1u);
  EXPECT_EQ(device_->live(), 1u);
  EXPECT_FALSE(gate_is_closed());
}

TEST_F(ForkTest, ARegionInUseStaysAndGoesWithItsLease) {
  Transfer transfer;
  acquire(transfer);
  Engine::before_fork();
  EXPECT_EQ(device_->live(), 1u);
  release(transfer);
  EXPECT_EQ(device_->live(), 0u) << "the fork is not over";
  test::in_child([] { Engine::after_fork(); });
  Engine::after_fork();
}

/// Marks what it registers MADV_DONTFORK, as fork-safe libibverbs does.
class ForkOfHidingDeviceTest : public ForkTest {
 protected:
  void equip(test::FakeDevice& device) override {
    device.hides_from_children = true;
    device.refuse = [this](Range range, Access) {
      registered_.push_back(range);
      mark();
      return 0;
    };
    device.refuse_deregistration = [this](RegistrationKey key) {
      registered_[key.handle - 1] = {};
      mark();
      return 0;
    };
  }
  Range pages(std::size_t begin, std::size_t end) const {
    const auto first = reinterpret_cast<Address>(memory_);
    return {first + begin * page_size(), first + end * page_size()};
  }
  /// A child reads and writes them.
  static void child_has(Range range) {
    Engine::before_fork();
    test::in_child([&] {
      for (Address at = range.begin; at < range.end; at += page_size()) ++*reinterpret_cast<char*>(at);
    });
    Engine::after_fork();
  }

 private:
  void mark() const {
    ::madvise(memory_, kBytes, MADV_DOFORK);
    for (const Range range : registered_)
      if (!range.empty()) ::madvise(reinterpret_cast<void*>(range.begin), range.bytes(), MADV_DONTFORK);
  }
  std::vector<Range> registered_;  ///< by handle; empty: no more
};

TEST_F(ForkOfHidingDeviceTest, AChildHasAllButWhatTheProgramHasRegistered) {
  const auto use = [this](Range range) {
    Transfer transfer;
    acquire(range, transfer);
    release(transfer);
  };
  Transfer overlapping, inner;
  use(pages(0, 8));
  acquire(pages(4, 12), overlapping);
  child_has(pages(0, 4));
  use(pages(14, 22));
  acquire(pages(16, 18), inner);
  child_has(pages(14, 16));
  child_has(pages(18, 22));
  release(overlapping);
  release(inner);
  child_has(pages(0, 24));
}

TEST_F(ForkTest, AForkThatFailsIsOver) {
  use();
  Engine::before_fork();
  Engine::after_fork();
  EXPECT_FALSE(gate_is_closed());
  use();
  EXPECT_EQ(device_->live(), 1u);
}

}  // namespace
}  // namespace pinion
