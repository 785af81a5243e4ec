// Regions that threads contend for: each counts its leases for itself, and the region goes as any other.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "process/engine.h"
#include "support/eventually.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/sanitizers.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kUntilShared = 4 * 128;  ///< hits of two threads in turns, of which one in 128 is looked at

/// The context of a thread that waits until the end.
class OtherThread {
 public:
  OtherThread()
      : thread_([this] {
          context_.store(this_thread());
          context_.notify_all();
          end_.wait(false);
        }) {
    context_.wait(nullptr);
  }
  ~OtherThread() {
    end_.store(true);
    end_.notify_all();
    thread_.join();
  }
  ThreadContext& context() { return *context_.load(); }

 private:
  std::atomic<ThreadContext*> context_{nullptr};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

class SharedLeasesTest : public ::testing::Test {
 protected:
  void start(Options options = {}) {
    options.retention = RetentionKind::leave_pinned;
    options.device = kAutoDevice;
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
    auto device = std::make_unique<test::FakeDevice>();
    device->locks_at_fork = true;  // idle regions go before a fork
    device_ = device.get();
    Error refused;
    domain_ = Engine::running()->domains().add(std::move(device), refused);
    ASSERT_GE(domain_, 0) << refused.message;
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memory_ = Range::of(memory, kBytes);
  }
  void TearDown() override {
    Engine::stop();
    ::munmap(reinterpret_cast<void*>(memory_.begin), kBytes);
  }

  static LeasePath& lease_path() { return Engine::running()->lease_path(); }
  /// Every second MiB: neighbours stay regions of their own.
  Range part(std::size_t number) const {
    const Address begin = memory_.begin + 2 * number * kMiB;
    return {begin, begin + kMiB};
  }
  void acquire(ThreadContext& thread, std::size_t number, Transfer& transfer) const {
    ASSERT_TRUE(
        lease_path().lease(thread, domain_, {}, part(number), Access::read, transfer, Refusal::report));
    ASSERT_TRUE(device_->serves(transfer.region()->key, part(number), Access::read));
  }
  void use(ThreadContext& thread, std::size_t number) const {
    Transfer transfer;
    acquire(thread, number, transfer);
    lease_path().release(thread, transfer);
  }
  /// Both threads use the part in turns, until it is shared.
  void share(ThreadContext& other, std::size_t number) const {
    for (int i = 0; i < 2 * kUntilShared; ++i) {
      use(*this_thread(), number);
      use(other, number);
    }
    ASSERT_TRUE(is_shared(number));
  }
  bool is_shared(std::size_t number) const {
    Transfer transfer;
    acquire(*this_thread(), number, transfer);
    const bool shared = transfer.counted_at != 0;
    lease_path().release(*this_thread(), transfer);
    return shared;
  }

  static constexpr std::size_t kBytes = 32 * kMiB;
  test::FakeDevice* device_ = nullptr;
  int domain_ = -1;
  Range memory_{};
};

TEST_F(SharedLeasesTest, UsesInTurnsShareARegionAndLeaveItsWordAlone) {
  start();
  OtherThread other;
  share(other.context(), 0);
  Transfer first, second;
  acquire(*this_thread(), 0, first);
  acquire(other.context(), 0, second);
  EXPECT_EQ(first.region(), second.region());
  EXPECT_EQ(first.region()->word.load().leases(), 1u) << "the one that keeps it";
  lease_path().release(*this_thread(), first);
  lease_path().release(*this_thread(), second);  // another thread than the one that took it
  EXPECT_EQ(device_->calls(), 1u);
}

TEST_F(SharedLeasesTest, OneThreadSharesNothing) {
  start();
  for (int i = 0; i < 4 * kUntilShared; ++i) use(*this_thread(), 0);
  EXPECT_FALSE(is_shared(0));
}

TEST_F(SharedLeasesTest, ARegionWhoseMemoryGoesIsReplaced) {
  start();
  OtherThread other;
  share(other.context(), 0);
  Transfer out;
  acquire(other.context(), 0, out);
  void* const at = reinterpret_cast<void*>(part(0).begin);
  ASSERT_EQ(::mmap(at, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
  const RegistrationKey old = out.region()->key;
  Transfer fresh;
  acquire(*this_thread(), 0, fresh);
  EXPECT_NE(fresh.region()->key.handle, old.handle) << "a stale registration";
  EXPECT_TRUE(device_->serves(old, part(0), Access::read)) << "gone under a lease";
  lease_path().release(other.context(), out);
  EXPECT_TRUE(test::eventually([this] { return device_->live() == 1; }));
  lease_path().release(*this_thread(), fresh);
}

TEST_F(SharedLeasesTest, AnUnusedRegionWhoseMemoryGoesIsDeregistered) {
  start();
  OtherThread other;
  share(other.context(), 0);
  ::munmap(reinterpret_cast<void*>(part(0).begin), kMiB);
  use(*this_thread(), 1);  // a registration: the helper may be asleep
  EXPECT_TRUE(test::eventually([this] { return device_->live() == 1; }));
}

TEST_F(SharedLeasesTest, ALimitTakesASharedRegionToo) {
  Options options;
  options.limit = 2 * kMiB;
  start(options);
  OtherThread other;
  share(other.context(), 0);
  for (std::size_t number = 1; number < 5; ++number) use(*this_thread(), number);
  EXPECT_LE(device_->peak(), 2 * kMiB);
  EXPECT_TRUE(test::eventually([&] {
    Transfer first, second;
    for (Transfer* transfer : {&first, &second})
      EXPECT_TRUE(lease_path().lease(*this_thread(), domain_, {}, part(transfer == &first ? 5 : 6),
                                     Access::read, *transfer, Refusal::charge));
    const bool both = first.region() != nullptr && second.region() != nullptr;
    lease_path().release(*this_thread(), first);
    lease_path().release(*this_thread(), second);
    return both;
  })) << "the shared region stays for ever";
}

TEST_F(SharedLeasesTest, BeforeAForkASharedRegionGoesWithItsLastLease) {
  if (kSanitized) GTEST_SKIP() << "no threads after a fork";
  start();
  OtherThread other;
  share(other.context(), 0);
  Transfer out;
  acquire(other.context(), 0, out);
  Engine::before_fork();
  EXPECT_EQ(device_->live(), 1u) << "gone under a lease";
  lease_path().release(other.context(), out);
  EXPECT_EQ(device_->live(), 0u) << "the fork is not over";
  test::in_child([] { Engine::after_fork(); });
  Engine::after_fork();
  EXPECT_FALSE(is_shared(0));
}

TEST_F(SharedLeasesTest, AFinishedDomainGivesItsSharedRegionsBack) {
  start();
  OtherThread other;
  share(other.context(), 0);
  const Error error = Engine::running()->domains().close(domain_);
  EXPECT_FALSE(error) << error.message;
}

TEST_F(SharedLeasesTest, ALeaseOutlivesTheRun) {
  start();
  OtherThread other;
  share(other.context(), 0);
  Transfer out;
  acquire(other.context(), 0, out);
  LeasePath& past = lease_path();
  Engine::stop();
  past.release_after_run(out);
  start();  // the place is free again
  share(other.context(), 0);
}

TEST_F(SharedLeasesTest, AMemoryChangeIsNeverOverlooked) {
  start();
  constexpr int kThreads = 3;
  std::atomic<bool> end{false};
  std::atomic<std::uint64_t> counted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      while (!end.load(std::memory_order_relaxed)) {
        Transfer transfer;
        acquire(*this_thread(), 0, transfer);
        if (transfer.counted_at != 0) counted.fetch_add(1, std::memory_order_relaxed);
        EXPECT_TRUE(device_->serves(transfer.region()->key, part(0), Access::read)) << "gone under a lease";
        lease_path().release(*this_thread(), transfer);
      }
    });
  void* const at = reinterpret_cast<void*>(part(0).begin);
  for (int change = 0; change < 50; ++change) {
    const std::uint64_t before = counted.load();
    EXPECT_TRUE(test::eventually([&] { return counted.load() > before; })) << "shared again";
    const std::size_t registered = device_->calls();
    ASSERT_EQ(::mmap(at, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), at);
    EXPECT_TRUE(test::eventually([&] { return device_->calls() > registered; })) << "a stale registration";
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(test::eventually([this] { return device_->live() == 1; })) << "all others are gone";
}

}  // namespace
}  // namespace pinion
