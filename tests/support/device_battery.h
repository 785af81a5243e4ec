// Common behaviour of devices that pin, by any means: a test file instantiates the suite for its devices.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/make.h"
#include "in_child.h"
#include "pinned_memory.h"

namespace pinion::test {

struct DeviceMaker {
  std::string name;
  std::function<DeviceResult()> make;
};
inline std::string name_of(const ::testing::TestParamInfo<DeviceMaker>& maker) { return maker.param.name; }
inline void PrintTo(const DeviceMaker& maker, std::ostream* out) { *out << maker.name; }

class PinningDevice : public ::testing::TestWithParam<DeviceMaker> {
 protected:
  void SetUp() override {
    const DeviceResult made = GetParam().make();
    if (made.error) GTEST_SKIP() << made.error.message;
  }
  std::unique_ptr<Device> make() const {
    DeviceResult made = GetParam().make();
    if (made.error) throw std::runtime_error(made.error.message);
    return std::move(made.device);
  }
};

/// Four threads, both actors, overlapping ranges of memory that io_uring takes and memory that it does not.
inline void register_concurrently(Device& device) {
  Memory memory(128 * page_size());
  memory.touch().protect(memory.pages(64, 128), PROT_READ);
  const std::size_t before = held();
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&device, &memory, seed] {
      std::mt19937 random(seed);
      const Actor actor = kActors[seed % 2];
      std::vector<RegistrationKey> keys;
      for (int turn = 0; turn < 500; ++turn) {
        if (!keys.empty() && random() % 2) {
          std::swap(keys[random() % keys.size()], keys.back());
          static_cast<void>(device.deregister(keys.back(), actor));
          keys.pop_back();
        } else {
          const std::size_t begin = random() % 127;
          const std::size_t end = begin + 1 + random() % (127 - begin);
          const Registration r = device.register_range(memory.pages(begin, end), Access::read, actor);
          ASSERT_FALSE(r.error) << r.error.message;
          keys.push_back(r.key);
        }
      }
      for (RegistrationKey key : keys) static_cast<void>(device.deregister(key, actor));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(held_becomes(before)) << held() << " of " << before;
}

TEST_P(PinningDevice, PinsAndUnpinsForBothActors) {
  const auto device = make();
  Memory memory(kMiB);
  memory.touch();
  const std::size_t before = held();
  for (Actor actor : kActors) {
    const Registration r = device->register_range(memory.range(), Access::all, actor);
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_NE(r.key.handle, 0u);
    EXPECT_EQ(r.granted, Access::all);
    EXPECT_EQ(held(), before + kMiB);
    static_cast<void>(device->deregister(r.key, actor));
    EXPECT_TRUE(held_becomes(before));
  }
}

TEST_P(PinningDevice, EitherActorDeregisters) {
  const auto device = make();
  Memory memory(kMiB);
  const std::size_t before = held();
  const Registration r = device->register_range(memory.range(), Access::write, Actor::application);
  ASSERT_FALSE(r.error) << r.error.message;
  static_cast<void>(device->deregister(r.key, Actor::helper));
  EXPECT_TRUE(held_becomes(before));
}

TEST_P(PinningDevice, LargeUntouchedRangeTakesSeveralSlots) {
  const auto device = make();
  Memory memory(40 * kMiB);
  const std::size_t before = held();
  const Registration r = device->register_range(memory.range(), Access::write, Actor::helper);
  ASSERT_FALSE(r.error) << r.error.message;
  EXPECT_EQ(held(), before + 40 * kMiB);
  static_cast<void>(device->deregister(r.key, Actor::helper));
  EXPECT_TRUE(held_becomes(before));
}

TEST_P(PinningDevice, DestructionUnpinsWhatIsLeft) {
  Memory writable(kMiB);
  Memory read_only(kMiB);
  read_only.touch().protect(read_only.range(), PROT_READ);
  const std::size_t before = held();
  {
    const auto device = make();
    ASSERT_FALSE(device->register_range(writable.range(), Access::write, Actor::application).error);
    ASSERT_FALSE(device->register_range(read_only.range(), Access::read, Actor::application).error);
    EXPECT_EQ(held(), before + 2 * kMiB);
  }
  EXPECT_TRUE(held_becomes(before));
}

TEST_P(PinningDevice, ReadOnlyMemoryIsRegisteredForReadingOnly) {
  const auto device = make();
  for (const bool touched : {true, false}) {
    Memory memory(kMiB);
    if (touched) memory.touch();
    memory.protect(memory.range(), PROT_READ);
    const std::size_t before = held();
    const Registration r = device->register_range(memory.range(), Access::remote_read, Actor::application);
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_TRUE(includes(r.granted, Access::read | Access::remote_read));
    EXPECT_FALSE(includes(r.granted, Access::write));
    EXPECT_FALSE(includes(r.granted, Access::remote_write));
    EXPECT_EQ(held(), before + kMiB);
    static_cast<void>(device->deregister(r.key, Actor::application));
    EXPECT_TRUE(held_becomes(before));

    for (Access access : {Access::write, Access::remote_write, Access::all}) {
      const Registration refused = device->register_range(memory.range(), access, Actor::application);
      EXPECT_EQ(refused.error.code, EFAULT);
      EXPECT_TRUE(mentions(refused.error, {"not writable"})) << refused.error.message;
    }
    EXPECT_EQ(held(), before);
  }
}

TEST_P(PinningDevice, SharedFileIsRegisteredForWriting) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  ASSERT_EQ(ftruncate(fileno(file.get()), kMiB), 0);
  const auto device = make();
  Memory memory(kMiB, MAP_SHARED, fileno(file.get()));
  const std::size_t before = held();
  for (Access access : {Access::read, Access::all}) {
    const Registration r = device->register_range(memory.range(), access, Actor::helper);
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_TRUE(includes(r.granted, access));
    EXPECT_EQ(held(), before + kMiB);
    static_cast<void>(device->deregister(r.key, Actor::helper));
    EXPECT_TRUE(held_becomes(before));
  }
}

TEST_P(PinningDevice, MemoryThatIsNotThere) {
  const auto device = make();
  Memory memory(64 * page_size());
  memory.touch();
  const std::size_t before = held();
  memory.unmap(memory.pages(32, 64));
  for (Access access : {Access::read, Access::all}) {
    for (const Range range : {memory.pages(32, 64), memory.pages(0, 64), memory.pages(31, 33)}) {
      const Registration r = device->register_range(range, access, Actor::application);
      EXPECT_EQ(r.error.code, EFAULT);
      EXPECT_TRUE(mentions(r.error, {"not mapped"})) << r.error.message;
    }
  }
  memory.protect(memory.pages(0, 8), PROT_NONE);
  EXPECT_EQ(device->register_range(memory.pages(0, 16), Access::read, Actor::application).error.code, EFAULT);
  EXPECT_EQ(held(), before);
}

TEST_P(PinningDevice, FailureInTheMiddleUndoesAll) {
  const auto device = make();
  Memory memory(40 * kMiB);
  memory.touch();
  // All pages are there, so it is the pinning of a later slot that fails.
  memory.protect({memory.range().end - kMiB, memory.range().end}, PROT_READ);
  const std::size_t before = held();
  const Registration r = device->register_range(memory.range(), Access::write, Actor::application);
  EXPECT_EQ(r.error.code, EFAULT);
  EXPECT_TRUE(held_becomes(before));
}

TEST_P(PinningDevice, OnlyWholePages) {
  const auto device = make();
  Memory memory(4 * page_size());
  const Range pages = memory.range();
  for (const Range range : {Range{pages.begin + 1, pages.end}, Range{pages.begin, pages.end - 1},
                            Range{pages.begin, pages.begin}}) {
    EXPECT_EQ(device->register_range(range, Access::read, Actor::application).error.code, EINVAL);
  }
}

TEST_P(PinningDevice, AKeyIsDeregisteredOnce) {
  const auto device = make();
  Memory memory(kMiB);
  const Registration first = device->register_range(memory.range(), Access::write, Actor::application);
  const Registration second = device->register_range(memory.range(), Access::write, Actor::application);
  ASSERT_FALSE(first.error || second.error);
  static_cast<void>(device->deregister(first.key, Actor::application));
  const std::size_t before = held();
  static_cast<void>(device->deregister(RegistrationKey{}, Actor::application));
  EXPECT_DEBUG_DEATH(static_cast<void>(device->deregister(first.key, Actor::application)), "not registered");
  EXPECT_EQ(held(), before);
  static_cast<void>(device->deregister(second.key, Actor::application));
}

TEST_P(PinningDevice, MemlockLimitIsAnErrorWithNeedAndCure) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user with another limit";
  for (const bool io_uring : {true, false}) {
    in_child([&] {
      become_ordinary_user(64 << 10);
      if (!io_uring) forbid_io_uring();
      const auto device = make();
      Memory memory(kMiB);
      memory.touch();
      for (Actor actor : kActors) {
        const Registration r = device->register_range(memory.range(), Access::all, actor);
        EXPECT_EQ(r.error.code, ENOMEM);
        EXPECT_TRUE(mentions(r.error, {"1M", "64K", "RLIMIT_MEMLOCK", "ulimit -l", "--limit"}))
            << r.error.message;
        EXPECT_TRUE(held_becomes(0));
      }
      const Registration small = device->register_range(memory.pages(0, 2), Access::all, Actor::application);
      EXPECT_FALSE(small.error) << small.error.message;
    });
  }
  in_child([&] {
    become_ordinary_user(0);
    forbid_io_uring();
    Memory memory(kMiB);
    const Registration r = make()->register_range(memory.range(), Access::all, Actor::application);
    EXPECT_EQ(r.error.code, EPERM);
    EXPECT_TRUE(mentions(r.error, {"ulimit -l"})) << r.error.message;
  });
}

TEST_P(PinningDevice, ForkedChildStartsAnew) {
  const auto device = make();
  Memory memory(kMiB);
  memory.touch();
  const std::size_t before = held();
  const Registration parents = device->register_range(memory.range(), Access::all, Actor::application);
  ASSERT_FALSE(parents.error) << parents.error.message;
  in_child([&] {
    device->abandon_after_fork();
    EXPECT_EQ(held(), 0u);
    static_cast<void>(device->deregister(parents.key, Actor::application));
    const Registration own = device->register_range(memory.range(), Access::all, Actor::application);
    ASSERT_FALSE(own.error) << own.error.message;
    EXPECT_NE(own.key.handle, parents.key.handle);
    EXPECT_EQ(held(), kMiB);
    static_cast<void>(device->deregister(own.key, Actor::application));
    EXPECT_TRUE(held_becomes(0));
  });
  EXPECT_EQ(held(), before + kMiB);
  static_cast<void>(device->deregister(parents.key, Actor::application));
  EXPECT_TRUE(held_becomes(before));
}

TEST_P(PinningDevice, ManyThreads) { register_concurrently(*make()); }

}  // namespace pinion::test
