// Jobs of two to four processes by the C API of firehose, over the software providers of libfabric that this
// machine has, with each strategy.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "firehose/bucket_choice.h"
#include "pinion/firehose.h"
#include "support/firehose_member.h"
#include "support/processes.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"

namespace pinion::firehose {
namespace {

using test::FirehoseMember;
using test::map_memory;
using test::Processes;

constexpr std::size_t kBytes = std::size_t{1} << 20;
/// No mapping is made there.
constexpr std::uint64_t kUnmapped = 0x8000;

struct Kind {
  const char* provider;
  const char* strategy;
};

class FirehoseJob : public testing::TestWithParam<Kind> {
 protected:
  /// Runs `f(member)` in each process; false where the machine lacks the provider.
  void run(
      unsigned processes, const std::function<void(FirehoseMember&)>& f,
      unsigned (*bucket)(unsigned process) = [](unsigned) { return 0U; }) {
    TemporaryDirectory directory;
    Processes all(processes, [&](unsigned process) {
      pinion_firehose_options options{};
      options.strategy = GetParam().strategy;
      options.bucket = bucket(process);
      options.handler_context = &heard;
      options.handlers[2] = [](void* context, pinion_firehose*, unsigned from, const void* payload,
                               std::size_t bytes) {
        std::uint64_t number = 0;
        ASSERT_EQ(bytes, sizeof number);
        std::memcpy(&number, payload, bytes);
        auto* const last = static_cast<std::atomic<std::uint64_t>*>(context) + from;
        EXPECT_EQ(last->load() + 1, number) << "not in order";
        last->store(number);
      };
      FirehoseMember member(GetParam().provider, directory.path(), process, processes, options);
      f(member);
    });
    if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam().provider;
  }
  static inline std::atomic<std::uint64_t> heard[8];
};

char pattern(unsigned seed, std::size_t at) { return static_cast<char>(at * 31 + at / 251 + seed * 97); }

void fill(char* memory, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = pattern(seed, i);
}
bool holds(const char* memory, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (memory[i] != pattern(seed, i)) return false;
  return true;
}

TEST_P(FirehoseJob, PutsAndGetsOfAnySizeAndAlignment) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_memory(2 * kBytes);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    std::vector<char> out(kBytes), in(kBytes);
    unsigned seed = member.process();
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{4001},
                                    std::size_t{100'003}, kBytes - 1}) {
      seed += 2;
      fill(out.data(), bytes, seed);
      const std::uint64_t at = all[other] + 4093;
      ASSERT_EQ(pinion_firehose_put(member.firehose, other, at, out.data(), bytes), 0) << pinion_last_error();
      ASSERT_EQ(pinion_firehose_get(member.firehose, other, at, in.data(), bytes), 0) << pinion_last_error();
      EXPECT_TRUE(holds(in.data(), bytes, seed)) << bytes << " bytes";
      member.barrier();
      EXPECT_TRUE(holds(mine + 4093, bytes, seed + 1 - 2 * member.process())) << bytes << " bytes";
      member.barrier();
    }
    // The own memory, by the same calls.
    ASSERT_EQ(pinion_firehose_put(member.firehose, member.process(), all[member.process()], "own", 4), 0);
    EXPECT_STREQ(mine, "own");
    const auto statistics = member.statistics();
    EXPECT_EQ(statistics.puts, 6U);
    EXPECT_EQ(statistics.gets, 5U);
  });
}

// The jobs of a process meet in one directory, and go on when another of them ends or cannot begin.
TEST_P(FirehoseJob, SeveralOfAProcess) {
  TemporaryDirectory parent;
  const std::string directory = parent.path() + "/job";
  Processes all(2, [&](unsigned process) {
    pinion_firehose_options options{};
    options.strategy = GetParam().strategy;
    const auto join = [&] {
      return std::make_unique<FirehoseMember>(GetParam().provider, directory, process, 2, options);
    };
    char* const mine = map_memory(2 * kBytes);
    const unsigned other = 1 - process;
    const auto works = [&](FirehoseMember& member, unsigned seed) {
      const auto heaps = member.exchange(mine);
      std::vector<char> out(kBytes);
      fill(out.data(), kBytes, seed + process);
      ASSERT_EQ(pinion_firehose_put(member.firehose, other, heaps[other], out.data(), kBytes), 0)
          << pinion_last_error();
      member.barrier();
      EXPECT_TRUE(holds(mine, kBytes, seed + other));
      member.barrier();
    };
    auto first = join();
    auto second = join();
    works(*first, 10);
    works(*second, 20);
    pinion_firehose_options bad{};
    bad.size = sizeof bad;
    bad.process = process;
    bad.processes = 2;
    bad.directory = directory.c_str();
    bad.provider = "no such provider";
    pinion_firehose* none = nullptr;
    EXPECT_NE(pinion_firehose_open(&bad, &none), 0);
    works(*first, 30);
    first.reset();
    works(*second, 40);
    for (unsigned round = 0; round < 5; ++round) {  // one after the other, at once
      first = join();
      works(*first, 50 + 10 * round);
      first.reset();
    }
    works(*second, 110);
  });
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam().provider;
  EXPECT_FALSE(std::filesystem::exists(directory));
}

// Equal parts for all peers, whatever they want; a miss is answered before its data leaves; no walk asks
// ahead.
TEST(FirehoseOfThePaper, HasStaticSharesAndNoRiders) {
  constexpr std::size_t kBucket = 4096;
  TemporaryDirectory directory;
  Processes all(3, [&](unsigned process) {
    pinion_firehose_options options{};
    options.bucket = kBucket;
    options.memory = 16 * kBucket;
    options.victims = 4 * kBucket;
    options.sharing = "static";
    options.rides = "off";
    FirehoseMember member("tcp;ofi_rxm", directory.path(), process, 3, options);
    char* const mine = map_memory(32 * kBucket);
    const auto heaps = member.exchange(mine);
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 40 && process == 1; ++i, ++value)
      ASSERT_EQ(pinion_firehose_put(member.firehose, 0, heaps[0] + i % 32 * kBucket, &value, sizeof value), 0)
          << pinion_last_error();
    member.barrier();
    const auto statistics = member.statistics();
    if (process == 1) {
      EXPECT_EQ(statistics.riders, 0U);
      EXPECT_EQ(statistics.misses, statistics.moves) << "one bucket a miss";
      EXPECT_LE(statistics.buckets, 8U) << "F of 16 buckets and two peers";
      EXPECT_GT(statistics.moves, 31U);
    }
    if (process == 0) {
      EXPECT_LE(statistics.exposed_peak_bytes, options.memory + options.victims);
      EXPECT_GT(statistics.unpins, 0U);
      EXPECT_GT(statistics.unpin_ns, 0U);
      EXPECT_GT(statistics.pin_ns, statistics.pins);
    }
    member.barrier();
  });
  if (all.skipped()) GTEST_SKIP() << "no provider tcp;ofi_rxm";
}

TEST(FirehoseOfThePaper, OptionsThatAreNoneAreRefused) {
  pinion_firehose* firehose = nullptr;
  pinion_firehose_options options{};
  options.size = sizeof options;
  options.sharing = "equal";
  EXPECT_EQ(pinion_firehose_open(&options, &firehose), EINVAL);
  EXPECT_STREQ(pinion_last_error(), "pinion_firehose_open: sharing `equal`: valid are lending, static");
  options.sharing = "static";
  options.rides = "no";
  EXPECT_EQ(pinion_firehose_open(&options, &firehose), EINVAL);
  EXPECT_STREQ(pinion_last_error(), "pinion_firehose_open: rides `no`: valid are on, off");
}

TEST_P(FirehoseJob, ManyUnderWayByHandlesImplicitAndScattered) {
  run(3, [](FirehoseMember& member) {
    constexpr unsigned kPuts = 500;
    constexpr std::size_t kEach = 1024;
    char* const mine = map_memory(4 * kPuts * kEach);
    const auto all = member.exchange(mine);
    std::vector<char> out(kPuts * kEach), in(kPuts * kEach);
    fill(out.data(), out.size(), member.process());
    std::vector<pinion_firehose_handle> handles(kPuts);
    const unsigned next = (member.process() + 1) % 3;
    const std::uint64_t target = all[next] + member.process() * kPuts * kEach;
    for (unsigned i = 0; i < kPuts; ++i)
      ASSERT_EQ(pinion_firehose_put_nb(member.firehose, next, target + i * kEach, &out[i * kEach], kEach,
                                       &handles[i]),
                0);
    for (auto& handle : handles) ASSERT_EQ(pinion_firehose_wait(member.firehose, &handle), 0);
    EXPECT_EQ(pinion_firehose_test(member.firehose, &handles[0]), 0) << "a handle that is done";
    for (unsigned i = 0; i < kPuts; ++i)
      ASSERT_EQ(pinion_firehose_get_nbi(member.firehose, next, target + i * kEach, &in[i * kEach], kEach), 0);
    ASSERT_EQ(pinion_firehose_fence(member.firehose), 0);
    EXPECT_EQ(in, out);

    std::vector<pinion_firehose_piece> pieces;
    for (unsigned i = 0; i < kPuts; ++i)
      pieces.push_back({&out[i * kEach], target + (kPuts - 1 - i) * kEach, kEach});
    pinion_firehose_handle handle;
    ASSERT_EQ(pinion_firehose_put_v(member.firehose, next, pieces.data(), pieces.size(), &handle), 0);
    ASSERT_EQ(pinion_firehose_wait(member.firehose, &handle), 0);
    for (auto& piece : pieces) piece.local = &in[static_cast<char*>(piece.local) - out.data()];
    in.assign(in.size(), 0);
    ASSERT_EQ(pinion_firehose_get_v(member.firehose, next, pieces.data(), pieces.size(), &handle), 0);
    ASSERT_EQ(pinion_firehose_wait(member.firehose, &handle), 0);
    EXPECT_EQ(in, out);
    ASSERT_EQ(pinion_firehose_quiet(member.firehose), 0);
  });
}

TEST_P(FirehoseJob, SmallPiecesTravelTogetherOrApart) {
  run(2, [](FirehoseMember& member) {
    constexpr std::size_t kPieces = 60, kCalls = 4;
    char* const mine = map_memory(kBytes);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    std::mt19937 random(member.process());
    std::vector<char> out(kPieces * 64), in(out.size());
    for (std::size_t call = 0; call < kCalls; ++call) {
      for (char& byte : out) byte = static_cast<char>(random());
      std::vector<pinion_firehose_piece> pieces;
      for (std::size_t i = 0; i < kPieces; ++i)
        pieces.push_back({&out[i * 64], all[other] + i * 15'001, 1 + random() % 64});
      pinion_firehose_handle handle;
      ASSERT_EQ(pinion_firehose_put_v(member.firehose, other, pieces.data(), kPieces, &handle), 0);
      ASSERT_EQ(pinion_firehose_wait(member.firehose, &handle), 0) << pinion_last_error();
      for (auto& piece : pieces) piece.local = &in[static_cast<char*>(piece.local) - out.data()];
      ASSERT_EQ(pinion_firehose_get_v(member.firehose, other, pieces.data(), kPieces, &handle), 0);
      ASSERT_EQ(pinion_firehose_wait(member.firehose, &handle), 0) << pinion_last_error();
      for (const auto& piece : pieces)
        ASSERT_EQ(std::memcmp(piece.local, &out[static_cast<char*>(piece.local) - in.data()], piece.bytes),
                  0);
    }
    const auto statistics = member.statistics();
    EXPECT_EQ(statistics.puts, kCalls * kPieces);
    EXPECT_GE(statistics.packed, kPieces) << "each way is tried";
    EXPECT_LT(statistics.packed, 2 * kCalls * kPieces);
    // One of them lies nowhere.
    pinion_firehose_piece pieces[] = {{out.data(), all[other], 8}, {out.data(), kUnmapped, 8}};
    for (int way = 0; way < 2; ++way) {
      pinion_firehose_handle handle;
      ASSERT_EQ(pinion_firehose_put_v(member.firehose, other, pieces, 2, &handle), 0);
      EXPECT_EQ(pinion_firehose_wait(member.firehose, &handle), EFAULT);
    }
    member.barrier();
  });
}

TEST_P(FirehoseJob, AtomicsOfAllProcessesAndThreads) {
  run(3, [](FirehoseMember& member) {
    constexpr unsigned kTimes = 25;
    char* const mine = map_memory(4096);
    const auto all = member.exchange(mine);
    const auto count = [&] {
      for (unsigned i = 0; i < kTimes; ++i) {
        ASSERT_EQ(
            pinion_firehose_atomic(member.firehose, 0, all[0] + 8, 8, PINION_FIREHOSE_ADD, 1, 0, nullptr), 0)
            << pinion_last_error();
        std::uint64_t old = 0, seen = 0;
        do {
          seen = old;
          ASSERT_EQ(pinion_firehose_atomic(member.firehose, 0, all[0] + 4, 4, PINION_FIREHOSE_COMPARE_SWAP,
                                           seen + 1, seen, &old),
                    0);
        } while (old != seen);
      }
    };
    std::thread another(count);
    count();
    another.join();
    member.barrier();
    std::uint64_t sum = 0, small = 0;
    ASSERT_EQ(pinion_firehose_atomic(member.firehose, 0, all[0] + 8, 8, PINION_FIREHOSE_FETCH, 0, 0, &sum),
              0);
    ASSERT_EQ(pinion_firehose_atomic(member.firehose, 0, all[0] + 4, 4, PINION_FIREHOSE_OR, 0, 0, &small), 0);
    EXPECT_EQ(sum, 3 * 2 * kTimes);
    EXPECT_EQ(small, 3 * 2 * kTimes);
    EXPECT_EQ(pinion_firehose_atomic(member.firehose, 0, all[0] + 2, 4, PINION_FIREHOSE_ADD, 0, 0, nullptr),
              EINVAL);
    member.barrier();
  });
}

TEST_P(FirehoseJob, MessagesArriveInOrder) {
  run(4, [](FirehoseMember& member) {
    constexpr std::uint64_t kMessages = 400;
    for (std::uint64_t i = 1; i <= kMessages; ++i)
      for (unsigned to = 0; to < 4; ++to)
        ASSERT_EQ(pinion_firehose_send(member.firehose, to, 2, &i, sizeof i), 0) << pinion_last_error();
    for (auto* last = heard; last < heard + 4; ++last)
      while (last->load() < kMessages) ASSERT_EQ(pinion_firehose_progress(member.firehose), 0);
    const std::size_t most = pinion_firehose_max_message(member.firehose);
    std::vector<char> large(most + 1);
    EXPECT_EQ(pinion_firehose_send(member.firehose, 0, 3, large.data(), most + 1), EMSGSIZE);
    EXPECT_EQ(pinion_firehose_send(member.firehose, 0, PINION_FIREHOSE_HANDLERS, nullptr, 0), EINVAL);
  });
}

TEST_P(FirehoseJob, BadMemoryIsAnErrorOfTheOperation) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_memory(2 * kBytes);
    ::mprotect(mine + kBytes, kBytes, PROT_READ);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    std::vector<char> local(kBytes, 'x');
    EXPECT_EQ(pinion_firehose_put(member.firehose, other, all[other] + kBytes, local.data(), 100), EFAULT);
    EXPECT_EQ(pinion_firehose_get(member.firehose, other, all[other] + kBytes, local.data(), kBytes), 0);
    EXPECT_EQ(local, std::vector<char>(kBytes, 0));
    EXPECT_EQ(pinion_firehose_put(member.firehose, other, kUnmapped, local.data(), 8), EFAULT);
    EXPECT_EQ(pinion_firehose_get(member.firehose, other, kUnmapped, local.data(), 8), EFAULT);
    for (const std::uint64_t at : {all[other] + kBytes, kUnmapped})
      EXPECT_EQ(pinion_firehose_atomic(member.firehose, other, at, 8, PINION_FIREHOSE_ADD, 1, 0, nullptr),
                EFAULT);
    EXPECT_EQ(pinion_firehose_put(member.firehose, 2, all[other], local.data(), 8), EINVAL);
    ASSERT_EQ(pinion_firehose_put(member.firehose, other, all[other], local.data(), kBytes), 0);
    member.barrier();
  });
}

TEST(FirehoseBuckets, SuitTheMemoryForPeers) {
  constexpr std::uint64_t kKiB = 1024, kMiB = kKiB * kKiB, kGiB = kKiB * kMiB;
  EXPECT_EQ(suitable_bucket(kGiB, 2, false), 64 * kKiB);
  EXPECT_EQ(suitable_bucket(kGiB, 1'000, false), 64 * kKiB);
  EXPECT_EQ(suitable_bucket(kGiB, 10'000, false), 16 * kKiB) << "four for each peer";
  EXPECT_EQ(suitable_bucket(kMiB, 10'000, false), page_size());
  EXPECT_EQ(suitable_bucket(0, 1, false), page_size());
  EXPECT_EQ(suitable_bucket(kGiB, 2, true), 2 * kMiB);
  EXPECT_EQ(suitable_bucket(kGiB, 200, true), kMiB);
  std::uint64_t bucket = 0;
  EXPECT_EQ(agreed_bucket(std::array{2 * kMiB, 64 * kKiB, kMiB}, bucket).code, 0);
  EXPECT_EQ(bucket, 64 * kKiB);
  for (const std::uint64_t nonsense : {std::uint64_t{0}, 5 * kKiB, page_size() / 2})
    EXPECT_EQ(agreed_bucket(std::array{64 * kKiB, nonsense}, bucket).code, EBADMSG);
}

// Whatever the peers propose, the job has buckets of whole pages, no larger than anyone's.
TEST(FirehoseBuckets, AreAgreedOnWhateverIsProposed) {
  std::mt19937_64 random(1);
  unsigned agreed = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::array<std::uint64_t, 3> proposals;
    for (std::uint64_t& one : proposals)
      one = random() % 4 ? std::uint64_t{1} << random() % 40 : random() >> random() % 64;
    std::uint64_t bucket = 0;
    const Error error = agreed_bucket(proposals, bucket);
    const std::uint64_t least = *std::min_element(proposals.begin(), proposals.end());
    ASSERT_EQ(error.code, is_bucket(least) ? 0 : EBADMSG) << least;
    if (error) continue;
    ++agreed;
    ASSERT_EQ(bucket, least);
    ASSERT_EQ(bucket % page_size(), 0U);
  }
  EXPECT_GT(agreed, 100U);
}

TEST(FirehoseBuckets, OfMemoryInHugepagesAreHugepages) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  char* const memory = map_memory(4 * kHuge);
  char* const first = memory + (kHuge - reinterpret_cast<std::uintptr_t>(memory) % kHuge) % kHuge;
  ::madvise(first, 2 * kHuge, MADV_HUGEPAGE);
  ::madvise(first + 2 * kHuge, kHuge, MADV_NOHUGEPAGE);
  std::memset(first, 1, 3 * kHuge - 1);
  const pinion_range huge{first, 2 * kHuge}, more{first, 3 * kHuge - 1};
  pinion_firehose_options options{};
  options.memory = std::uint64_t{1} << 30;
  options.segment_count = 1;
  options.segments = &more;
  const std::uint64_t usual = proposed_bucket(options, 2);
  options.segments = &huge;
  const std::uint64_t in_hugepages = proposed_bucket(options, 2);
  ::munmap(memory, 4 * kHuge);
  if (in_hugepages != kHuge) GTEST_SKIP() << "the kernel gave no hugepages, or does not show them";
  EXPECT_EQ(usual, std::size_t{64} << 10) << "a part lies outside";
}

// One names 16 KiB, the others choose 64 KiB.
TEST_P(FirehoseJob, AgreesOnTheSmallestBucket) {
  if (GetParam().strategy != std::string("firehose")) GTEST_SKIP() << "other strategies ask for each put";
  run(
      3,
      [](FirehoseMember& member) {
        constexpr std::size_t kWords = kBytes / (8 << 10);
        char* const mine = map_memory(kBytes);
        const auto all = member.exchange(mine);
        const unsigned next = (member.process() + 1) % 3;
        for (std::size_t i = 0; i < kWords; ++i) {
          const std::uint64_t word = i + 1;
          ASSERT_EQ(pinion_firehose_put(member.firehose, next, all[next] + i * (8 << 10), &word, sizeof word),
                    0);
        }
        member.barrier();
        for (std::size_t i = 0; i < kWords; ++i)
          EXPECT_EQ(*reinterpret_cast<std::uint64_t*>(mine + i * (8 << 10)), i + 1);
        // Grants may come after the puts that have asked.
        EXPECT_TRUE(eventually(member, [&] {
          const auto statistics = member.statistics();
          return statistics.moves == 0 || statistics.distinct_buckets > kBytes / (32 << 10);
        }));
        member.barrier();
      },
      [](unsigned process) { return process == 1 ? 16U << 10 : 0U; });
}

TEST(FirehoseOptions, AreChecked) {
  pinion_firehose* firehose = nullptr;
  pinion_firehose_options options{};
  EXPECT_EQ(pinion_firehose_open(&options, &firehose), EINVAL) << "no size";
  options.size = sizeof options;
  options.processes = 2;
  EXPECT_EQ(pinion_firehose_open(&options, &firehose), EINVAL) << "no directory";
  TemporaryDirectory directory;
  options.directory = directory.path().c_str();
  options.process = 2;
  EXPECT_EQ(pinion_firehose_open(&options, &firehose), EINVAL) << "no such process";
  options.process = 0;
  options.bucket = 5000;
  EXPECT_EQ(pinion_firehose_open(&options, &firehose), EINVAL);
  options.bucket = 0;
  options.strategy = "none";
  const int code = pinion_firehose_open(&options, &firehose);
  if (code != ENOENT && code != ENOSYS && code != ENODEV) {  // no libfabric
    EXPECT_EQ(code, EINVAL);
    EXPECT_NE(std::string(pinion_last_error()).find("valid: firehose"), std::string::npos);
  }
  EXPECT_EQ(pinion_firehose_put(nullptr, 0, 0, nullptr, 0), EINVAL);
}

TEST_P(FirehoseJob, PeerKilledInBetween) {
  if (std::string(GetParam().provider) == "shm")
    GTEST_SKIP() << "libfabric's shm waits for ever for a lock that a killed process held";
  TemporaryDirectory directory;
  Processes all(3, [&](unsigned process) {
    pinion_firehose_options options{};
    options.strategy = GetParam().strategy;
    FirehoseMember member(GetParam().provider, directory.path(), process, 3, options);
    char* const mine = map_memory(kBytes);
    const auto addresses = member.exchange(mine);
    std::vector<char> local(kBytes);
    ASSERT_EQ(pinion_firehose_put(member.firehose, 1, addresses[1], local.data(), 100), 0);
    ASSERT_EQ(pinion_firehose_get(member.firehose, 0, addresses[0], local.data(), 100), 0);
    member.barrier();
    // A process that ends within a barrier fails it for the others: they are past it first.
    std::memset(mine, 1, 1);
    for (unsigned of = 0; process == 1 && of < 3; of += 2)
      for (char past = 0; past == 0;)
        ASSERT_EQ(pinion_firehose_get(member.firehose, of, addresses[of], &past, 1), 0);
    if (process == 1) ::raise(SIGKILL);
    int code = 0;
    while (code == 0)
      code = pinion_firehose_put(member.firehose, 1, addresses[1], local.data(), local.size());
    EXPECT_EQ(code, ECONNRESET) << pinion_last_error();
    EXPECT_EQ(pinion_firehose_barrier(member.firehose), ECONNRESET);
    const unsigned other = 2 - process;
    EXPECT_EQ(pinion_firehose_put(member.firehose, other, addresses[other], local.data(), local.size()), 0)
        << pinion_last_error();
  });
  all.expect_killed(1);
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam().provider;
}

#ifdef PINION_TEST_FULL
const auto kKinds =
    testing::Values(Kind{"tcp;ofi_rxm", "bounce"}, Kind{"shm", "bounce"}, Kind{"sockets", "bounce"},
                    Kind{"tcp;ofi_rxm", "firehose"}, Kind{"shm", "firehose"}, Kind{"sockets", "firehose"},
                    Kind{"tcp;ofi_rxm", "rendezvous"}, Kind{"tcp;ofi_rxm", "rendezvous-unpin"});
#else
const auto kKinds =
    testing::Values(Kind{"tcp;ofi_rxm", "bounce"}, Kind{"shm", "firehose"}, Kind{"sockets", "firehose"});
#endif
INSTANTIATE_TEST_SUITE_P(Kinds, FirehoseJob, kKinds, [](const auto& info) {
  return test::test_name(std::string(info.param.provider) + "_" + info.param.strategy);
});

}  // namespace
}  // namespace pinion::firehose
