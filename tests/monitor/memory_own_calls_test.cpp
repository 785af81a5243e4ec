// Code that makes its own system calls, loaded while transfers go on: by contents, under the default monitor,
// with userfaultfd and where it is refused. Each case runs in a process of its own, as a finding is
// permanent.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include "monitor/userfault.h"
#include "support/no_userfaultfd.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::uint64_t kOld = 1, kNew = 2;

class MemoryOwnCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
  }

  static Range map() {
    void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? Range{} : Range::of(at, kBytes);
  }

  /// Failures of the body are the child's, which prints them.
  static void in_a_process(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      body();
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  static constexpr std::size_t kBytes = std::size_t{1} << 18;
};

using Drop = long (*)(void*, std::size_t);

Drop load_plugin() {
  void* const handle = ::dlopen(PINION_TEST_OWN_CALLS, RTLD_NOW | RTLD_LOCAL);
  return handle == nullptr ? nullptr : reinterpret_cast<Drop>(::dlsym(handle, "plugin_drop"));
}

/// Registered before the library is loaded, dropped by it, and transferred anew.
void drop_what_is_registered(const Wire& wire, const Range& memory, bool keeps) {
  TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
  fill(memory, kOld);
  expect_transfers(ring, ring.acquire(memory), wire, memory, kOld);
  EXPECT_STREQ(memory_events::monitor()->name(), "libc");
  const Drop drop = load_plugin();
  ASSERT_NE(drop, nullptr);
  ASSERT_EQ(drop(reinterpret_cast<void*>(memory.begin), memory.bytes()), 0);
  for (std::uint64_t stamp = kNew; stamp < kNew + 4; ++stamp) {
    fill(memory, stamp);
    expect_transfers(ring, ring.acquire(memory), wire, memory, stamp);
    ASSERT_EQ(drop(reinterpret_cast<void*>(memory.begin), memory.bytes()), 0);
  }
  EXPECT_STREQ(memory_events::monitor()->name(), keeps ? "libc+userfaultfd" : "libc");
  fill(memory, kOld);
  const auto before = ring.counters();
  expect_transfers(ring, ring.acquire(memory), wire, memory, kOld);
  fill(memory, kNew);
  expect_transfers(ring, ring.acquire(memory), wire, memory, kNew);
  EXPECT_EQ(ring.counters().hits - before.hits, keeps ? 1 : 0);
}

TEST_F(MemoryOwnCalls, UserfaultfdIsTaken) {
  if (const Error refused = userfaultfd_refused()) GTEST_SKIP() << refused.message;
  in_a_process([] { drop_what_is_registered(Wire{kBytes}, map(), true); });
}

TEST_F(MemoryOwnCalls, NothingIsKeptWhereItIsRefused) {
  in_a_process([] {
    ASSERT_TRUE(refuse_userfaultfd());
    drop_what_is_registered(Wire{kBytes}, map(), false);
  });
}

/// libc itself has such calls; a second one bypasses all hooks.
TEST_F(MemoryOwnCalls, ASecondLibc) {
  if (const Error refused = userfaultfd_refused()) GTEST_SKIP() << refused.message;
  in_a_process([] {
    const Range memory = map();
    const Wire wire{kBytes};
    TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
    fill(memory, kOld);
    expect_transfers(ring, ring.acquire(memory), wire, memory, kOld);
    void* const second = ::dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    ASSERT_NE(second, nullptr) << ::dlerror();
    const auto mmap = reinterpret_cast<decltype(&::mmap)>(::dlsym(second, "mmap"));
    const auto munmap = reinterpret_cast<decltype(&::munmap)>(::dlsym(second, "munmap"));
    ASSERT_TRUE(mmap && munmap);
    for (std::uint64_t stamp = kNew; stamp < kNew + 4; ++stamp) {
      void* const at = reinterpret_cast<void*>(memory.begin);
      ASSERT_EQ(munmap(at, kBytes), 0);
      ASSERT_EQ(
          mmap(at, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
          at);
      fill(memory, stamp);
      expect_transfers(ring, ring.acquire(memory), wire, memory, stamp);
    }
    EXPECT_STREQ(memory_events::monitor()->name(), "libc+userfaultfd");
  });
}

}  // namespace
}  // namespace pinion::test
