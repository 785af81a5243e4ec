// Time that is charged in the books. Unregistered transfers: the time that a copy would take. A thread waits
// for it only where a NIC is emulated. The helper's work where no core is idle: what the run loses by it.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <time.h>

#include <vector>

#include "process/engine.h"
#include "runlog/reader.h"
#include "support/temporary_directory.h"

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
    EXPECT_TRUE(leases.lease(*thread, 0, {}, {begin, begin + bytes}, Access::read, made));
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

// Leave-pinned deregisters it as well.
TEST(ChargedTime, EndsWithTheProgram) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const TemporaryDirectory directory;
  Options options;
  options.device = "emulated";
  options.nic = "myrinet";
  options.log = directory.path() + "/log";
  JobPlace place;
  place.local_ranks = 1000;  // no core is idle
  const Error error = Engine::start(options, place, "test");
  ASSERT_FALSE(error) << error.message;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const auto begin = reinterpret_cast<Address>(memory);
  LeasePath& leases = Engine::running()->lease_path();
  Transfer made;
  const CallPoint call{ticks_now(), 1, CallKind::send};
  ASSERT_TRUE(leases.lease(*this_thread(), 0, call, {begin, begin + kBytes}, Access::read, made));
  leases.release(*this_thread(), made);
  Engine::stop();
  ::munmap(memory, kBytes);
  std::vector<runlog::Log> logs;
  const Error unread = runlog::read_logs({options.log}, logs);
  ASSERT_FALSE(unread) << unread.message;
  constexpr double kDeregistration = 6.0 * kMillisecond;
  const auto cores = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_LT(static_cast<double>(logs[0].live.counters.helper_charged_ns),
            TimeBudget::delay_of(place.local_ranks, cores) * kDeregistration);
}

}  // namespace
}  // namespace pinion
