// Unregistered transfers: the time that a copy would take is charged in the books. A thread waits for it only
// where a NIC is emulated.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/engine.h"

namespace pinion {
namespace {

std::uint64_t ns_of(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

struct Times {
  std::uint64_t charged, used, elapsed;
};

/// Makes transfers that are far above the limit.
Times refused_transfers(const char* device, int transfers, std::size_t bytes) {
  Options options;
  options.device = device;
  options.limit = 64 << 10;
  const Error error = Engine::start(options, {}, "test");
  EXPECT_FALSE(error) << error.message;
  Engine* engine = Engine::running();
  LeasePath& leases = engine->lease_path();
  ThreadContext* thread = this_thread();
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto begin = reinterpret_cast<Address>(memory);
  const auto transfer = [&] {
    Transfer made;
    EXPECT_TRUE(leases.acquire(*thread, 0, {}, {begin, begin + bytes}, Access::read, made));
    leases.release(*thread, made);
  };
  transfer();  // measures how fast this machine copies
  const std::uint64_t before = engine->counters().all().bounce_ns;
  const std::uint64_t used = ns_of(CLOCK_THREAD_CPUTIME_ID), start = ns_of(CLOCK_MONOTONIC);
  for (int i = 0; i < transfers; ++i) transfer();
  const Times times{engine->counters().all().bounce_ns - before, ns_of(CLOCK_THREAD_CPUTIME_ID) - used,
                    ns_of(CLOCK_MONOTONIC) - start};
  EXPECT_EQ(engine->counters().all().bounced, static_cast<std::uint64_t>(transfers) + 1);
  Engine::stop();
  ::munmap(memory, bytes);
  return times;
}

TEST(ChargedTime, IsNotSpentWherePagesArePinned) {
  const Times times = refused_transfers("pin", 20, std::size_t{1} << 30);
  EXPECT_GT(times.charged, 0u);
  EXPECT_LT(times.used, times.charged);
}

TEST(ChargedTime, IsSpentWhereANicIsEmulated) {
  const Times times = refused_transfers("emulated", 5, 1 << 20);
  EXPECT_GT(times.charged, 0u);
  EXPECT_GE(times.elapsed, times.charged);
}

}  // namespace
}  // namespace pinion
