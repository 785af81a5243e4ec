// How the pinned rings are given out, and what becomes of them when contexts change.
#include "intercept/cuda/ring.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "device/cuda/host_ranges.h"
#include "intercept/cuda/submission_gate.h"
#include "support/eventually.h"
#include "support/in_child.h"

namespace pinion::cuda {
namespace {

using namespace staging;

/// What the driver has registered, and what it answers.
struct World {
  std::mutex mutex;
  std::map<void*, std::size_t> registered;
  Result refuse_register = kSuccess;
  int events = 0, refuse_event_at = -1;
  std::optional<int> node;  ///< next to the device; empty: the driver does not say
};
World world;

Result host_register(void* memory, std::size_t bytes, unsigned flags) {
  const std::lock_guard lock(world.mutex);
  EXPECT_EQ(flags, kRegisterPortable);
  if (world.refuse_register != kSuccess) return world.refuse_register;
  return world.registered.emplace(memory, bytes).second ? kSuccess : kAlreadyRegistered;
}
Result event_create(Event* event, unsigned flags) {
  const std::lock_guard lock(world.mutex);
  EXPECT_EQ(flags, kEventBlocking | kEventNoTiming);
  if (world.events == world.refuse_event_at) return kOutOfMemory;
  *event = reinterpret_cast<Event>(static_cast<std::uintptr_t>(++world.events));
  return kSuccess;
}
Result event_destroy(Event) {
  const std::lock_guard lock(world.mutex);
  --world.events;
  return kSuccess;
}
const Driver kDriver = [] {
  Driver driver;
  driver.host_register = host_register;
  driver.event_create = event_create;
  driver.event_destroy = event_destroy;
  driver.exchange_capture_mode = [](int*) { return kSuccess; };
  driver.context_device = [](Ordinal* device) { return *device = 3, kSuccess; };
  driver.device_attribute = [](int* value, int attribute, Ordinal device) {
    EXPECT_EQ(attribute, kAttributeHostNumaNode);
    EXPECT_EQ(device, 3);
    if (world.node) *value = *world.node;
    return world.node ? kSuccess : kInvalidValue;
  };
  return driver;
}();

ContextKey context(unsigned number) {
  return {reinterpret_cast<Context>(static_cast<std::uintptr_t>(number * 16)), number};
}

class Ring : public testing::Test {
 protected:
  void SetUp() override {
    world.registered.clear();
    world.refuse_register = kSuccess;
    world.events = 0;
    world.refuse_event_at = -1;
    world.node.reset();
  }
  auto part(std::size_t bytes, const ContextKey& key = context(1)) {
    return std::make_unique<PinnedRings::Part>(*rings_, kDriver, key, bytes);
  }
  std::unique_ptr<PinnedRings> rings_ = std::make_unique<PinnedRings>();
};

TEST_F(Ring, IsRegisteredAtItsFirstUseAndKnownToHostRanges) {
  EXPECT_TRUE(world.registered.empty());
  const auto first = part(kMiB);
  ASSERT_TRUE(*first);
  ASSERT_EQ(world.registered.size(), 1u);
  const auto& [memory, bytes] = *world.registered.begin();
  EXPECT_EQ(bytes, kRingBytes);
  EXPECT_EQ(host_ranges().registration_of(reinterpret_cast<Address>(memory)), Range::of(memory, bytes));
  const auto second = part(kMiB);
  EXPECT_TRUE(*second);
  EXPECT_EQ(world.registered.size(), 1u);
}

TEST_F(Ring, PartsAreApartAndOfWhatACopyCanUse) {
  std::vector<std::unique_ptr<PinnedRings::Part>> parts;
  std::size_t total = 0;
  for (int i = 0; i < 100; ++i) {
    parts.push_back(part(256 * kMiB));
    if (!*parts.back()) break;
    std::memset(parts.back()->memory(0), i, parts.back()->bytes());
    total += parts.back()->bytes();
  }
  ASSERT_FALSE(*parts.back()) << "a full ring gave more";
  parts.pop_back();
  EXPECT_GE(parts.size(), 3u) << "several copies share a ring";
  EXPECT_GT(total, kRingBytes - kLeastSlots * kSlotBytes);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i]->memory(0)[0], static_cast<char>(i));
    EXPECT_EQ(parts[i]->memory(parts[i]->bytes() - 1)[0], static_cast<char>(i));
  }
  parts.clear();
  EXPECT_EQ(part(256 * kMiB)->bytes(), kMostSlots * kSlotBytes);
  EXPECT_EQ(part(3 * kMiB)->bytes(), 3 * kMiB);
}

TEST_F(Ring, EachPieceHasAnEventOfItsOwn) {
  const auto one = part(4 * kMiB), other = part(4 * kMiB);
  std::map<Event, int> seen;
  for (std::size_t at = 0; at < 4 * kMiB; at += kLeastPiece) {
    ++seen[one->event(at)];
    ++seen[other->event(at)];
  }
  EXPECT_EQ(seen.size(), 8 * kMiB / kLeastPiece);
  EXPECT_EQ(seen.count(nullptr), 0u);
}

TEST_F(Ring, APartLeftToTheEngineIsNotGivenAgain) {
  char* memory = nullptr;
  {
    const auto first = part(256 * kMiB);
    memory = first->memory(0);
    first->leave_to_engine();
  }
  const auto next = part(256 * kMiB);
  ASSERT_TRUE(*next);
  EXPECT_GE(next->memory(0), memory + kMostSlots * kSlotBytes);
}

TEST_F(Ring, EachContextHasItsOwn) {
  const auto one = part(kMiB, context(1)), other = part(kMiB, context(2));
  ASSERT_TRUE(*one && *other);
  EXPECT_EQ(world.registered.size(), 2u);
  std::vector<std::unique_ptr<PinnedRings::Part>> more;
  for (unsigned i = 3; i <= kMostRings; ++i) more.push_back(part(kMiB, context(i)));
  EXPECT_FALSE(*part(kMiB, context(100))) << "there is a most";
}

TEST_F(Ring, IsRegisteredAnewAfterAReset) {
  void* memory = part(kMiB)->memory(0);
  world.registered.clear();  // the reset
  rings_->contexts_changed(1);
  const auto key = context(2);  // the same handle would have another number, too
  const auto again = part(kMiB, key);
  ASSERT_TRUE(*again);
  EXPECT_EQ(again->memory(0), memory);
  EXPECT_EQ(world.registered.count(memory), 1u);
  EXPECT_EQ(world.events, static_cast<int>(2 * kEvents)) << "events went with their context";
}

TEST_F(Ring, KeepsItsRegistrationIfAnotherContextChanged) {
  part(kMiB);
  rings_->contexts_changed(7);
  EXPECT_TRUE(*part(kMiB));
  EXPECT_EQ(world.events, static_cast<int>(kEvents));
  rings_->contexts_changed(0);
  EXPECT_TRUE(*part(kMiB)) << "still registered";
  EXPECT_EQ(world.events, static_cast<int>(kEvents)) << "and with its events";
  EXPECT_EQ(world.registered.size(), 1u);
}

TEST_F(Ring, MemoryThatALivingContextHasRegisteredServesNoOther) {
  void* memory = part(kMiB, context(1))->memory(0);
  rings_->contexts_changed(0);
  std::vector<std::unique_ptr<PinnedRings::Part>> parts;
  for (unsigned i = 2; i <= kMostRings + 1; ++i) {
    parts.push_back(part(kMiB, context(i)));
    ASSERT_TRUE(*parts.back());
    EXPECT_NE(parts.back()->memory(0), memory);
  }
}

TEST_F(Ring, IsOutOfUseUntilItsLastPartEnds) {
  auto held = part(kMiB);
  rings_->contexts_changed(1);
  EXPECT_FALSE(*part(kMiB));
  held.reset();
  world.registered.clear();
  EXPECT_TRUE(*part(kMiB));
  EXPECT_EQ(world.registered.size(), 1u);
}

TEST_F(Ring, ARefusalHoldsUntilContextsChange) {
  world.refuse_register = kOutOfMemory;
  EXPECT_FALSE(*part(kMiB));
  world.refuse_register = kSuccess;
  EXPECT_FALSE(*part(kMiB));
  EXPECT_TRUE(world.registered.empty());
  rings_->contexts_changed(0);
  EXPECT_TRUE(*part(kMiB));
}

TEST_F(Ring, EventsThatCannotBeMadeAreARefusal) {
  world.refuse_event_at = 100;
  EXPECT_FALSE(*part(kMiB));
  EXPECT_EQ(world.events, 0) << "those that were made are given back";
  EXPECT_FALSE(*part(kMiB));
}

TEST_F(Ring, IsNotRegisteredWhileASubmissionIsUnderWay) {
  std::atomic<bool> inside{false}, leave{false};
  std::thread other([&] {
    const SubmissionGate::Entry entry(submission_gate(), reinterpret_cast<Stream>(0x1000));
    inside = true;
    while (!leave) std::this_thread::yield();
  });
  ASSERT_TRUE(test::eventually([&] { return inside.load(); }));
  EXPECT_FALSE(*part(kMiB));
  EXPECT_TRUE(world.registered.empty());
  leave = true;
  other.join();
  // It is tried again, less often each time that it was in vain.
  EXPECT_TRUE(test::eventually([&] { return bool(*part(kMiB)); }));
}

TEST_F(Ring, OneThreadPreparesAndNobodyWaits) {
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto mine = part(2 * kMiB);
        if (!*mine) continue;
        ++got;
        std::memset(mine->memory(0), i, 64);
        std::this_thread::yield();
        EXPECT_EQ(mine->memory(63)[0], static_cast<char>(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(got, 0);
  EXPECT_EQ(world.registered.size(), 1u);
}

/// Rings on NUMA nodes.
class RingOnNode : public Ring {
 protected:
  static constexpr int kPreferred = 1, kBind = 2;  // of <linux/mempolicy.h>, as kOfAddress

  void SetUp() override {
    Ring::SetUp();
    if (::syscall(SYS_get_mempolicy, nullptr, nullptr, 0, nullptr, 0) != 0)
      GTEST_SKIP() << "this machine keeps memory policies to itself";
  }
  /// The node that a new ring's memory prefers; empty: it has no policy.
  std::optional<int> node_of_new_ring() {
    world.registered.clear();
    rings_ = std::make_unique<PinnedRings>();
    const auto first = part(kMiB);
    if (world.registered.size() != 1) return ADD_FAILURE() << "no ring", std::nullopt;
    constexpr int kOfAddress = 2;
    int mode = -1;
    std::array<unsigned long, 16> nodes{};
    EXPECT_EQ(
        ::syscall(SYS_get_mempolicy, &mode, nodes.data(), 1025, world.registered.begin()->first, kOfAddress),
        0);
    if (mode != kPreferred) return std::nullopt;
    return std::countr_zero(nodes[0]);
  }
};

TEST_F(RingOnNode, ItsMemoryIsTakenNextToTheDevice) {
  world.node = 0;
  EXPECT_EQ(node_of_new_ring(), 0);
}

TEST_F(RingOnNode, WithoutAUsableNodeItIsLikeOtherMemory) {
  EXPECT_EQ(node_of_new_ring(), std::nullopt) << "a driver that does not say";
  for (const int node : {-1, 1023, 1024, 1 << 30}) {
    world.node = node;
    EXPECT_EQ(node_of_new_ring(), std::nullopt) << node;
  }
}

TEST_F(RingOnNode, AThreadWithAPolicyOfItsOwnKeepsIt) {
  world.node = 0;
  std::thread([&] {
    const unsigned long first_node = 1;
    ASSERT_EQ(::syscall(SYS_set_mempolicy, kBind, &first_node, 8 * sizeof first_node), 0);
    EXPECT_EQ(node_of_new_ring(), std::nullopt);
  }).join();
}

TEST_F(Ring, AForkedChildHasItsOwn) {
  const auto held = part(kMiB);
  test::in_child([&] {
    rings_->abandon_after_fork();
    host_ranges().abandon_after_fork();
    world.registered.clear();
    const auto own = part(kMiB);
    ASSERT_TRUE(*own);
    std::memset(own->memory(0), 1, kMiB);
  });
}

}  // namespace
}  // namespace pinion::cuda
