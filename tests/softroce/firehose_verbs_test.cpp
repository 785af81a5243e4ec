// Firehoses with libfabric's provider verbs: a hit needs no software of the memory's owner.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "base/clock.h"
#include "pinion/firehose.h"
#include "support/firehose_member.h"
#include "support/processes.h"
#include "support/stopped.h"
#include "support/temporary_directory.h"

namespace pinion::firehose {
namespace {

using test::FirehoseMember;
using test::Processes;

TEST(FirehoseVerbs, HitsNeedNoSoftwareOfTheOwner) {
  constexpr std::uint64_t kPuts = 50;
  constexpr std::size_t kBucket = std::size_t{64} << 10;
  TemporaryDirectory directory;
  Processes both(2, [&](unsigned process) {
    pinion_firehose_options options{};
    options.bucket = kBucket;
    FirehoseMember member("verbs;ofi_rxm", directory.path(), process, 2, options);
    char* const memory = test::map_memory(2 * kBucket);
    char* const mine = memory + (kBucket - reinterpret_cast<std::uintptr_t>(memory) % kBucket);
    const auto all = member.exchange(mine);
    const auto numbers = member.exchange(reinterpret_cast<void*>(static_cast<std::uintptr_t>(::getpid())));
    const auto owner = static_cast<pid_t>(numbers[0]);
    std::uint64_t value = 0;
    if (process == 1) {
      // The first one travels with its miss, and may be over before the bucket is held.
      for (const Time end = monotonic_now() + 60 * kSecond;
           member.statistics().hits == 0 && monotonic_now() < end;)
        ASSERT_EQ(pinion_firehose_put(member.firehose, 0, all[0], &value, sizeof value), 0);
      ASSERT_EQ(member.statistics().hits, 1);
    }
    member.barrier();
    if (process == 1) {
      ASSERT_TRUE(test::stop(owner));
      for (int code = 0; value < kPuts && code == 0;) {
        ++value;
        pinion_firehose_handle put;
        EXPECT_EQ(pinion_firehose_put_nb(member.firehose, 0, all[0], &value, sizeof value, &put), 0);
        const Time end = monotonic_now() + 60 * kSecond;
        while ((code = pinion_firehose_test(member.firehose, &put)) == EAGAIN && monotonic_now() < end)
          std::this_thread::yield();
        EXPECT_EQ(code, 0);
      }
      std::uint64_t seen = 0;
      EXPECT_EQ(pinion_firehose_get(member.firehose, 0, all[0], &seen, sizeof seen), 0);
      EXPECT_EQ(seen, kPuts);
      EXPECT_TRUE(test::is_stopped(owner)) << "its processor took part";
      ::kill(owner, SIGCONT);
      EXPECT_EQ(member.statistics().hits, kPuts + 2);
    }
    member.barrier();
    if (process == 0) {
      std::memcpy(&value, mine, sizeof value);
      EXPECT_EQ(value, kPuts);
    }
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

}  // namespace
}  // namespace pinion::firehose
