// Forks with a device whose library has fork handlers of its own: its regions go before these, or stay.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>

#include "engine/engine.h"
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
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "no threads after a fork";
    Options options;
    options.retention = RetentionKind::leave_pinned;
    options.device = kAutoDevice;
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
    auto device = std::make_unique<test::FakeDevice>();
    device->byte_ranges = device->locks_at_fork = true;
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
  void acquire(Transfer& transfer) {
    ASSERT_TRUE(
        lease_path().acquire(*this_thread(), domain_, {}, part(), Access::read, transfer, Refusal::report));
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
  bool gate_is_closed() { return lease_path().retirement().fork_gate().is_closed(); }

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
