// Firehoses while memory changes under them: recalls, changes held back, and puts that land in their target
// alone. Strategy `firehose`, on the providers that expose memory by keys; over `shm` memory of the arena.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "monitor/memory_events.h"
#include "pinion/firehose.h"
#include "placement/arena.h"
#include "placement/hugepage_heap.h"
#include "support/firehose_member.h"
#include "support/processes.h"
#include "support/stopped.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"

namespace pinion::firehose {
namespace {

using test::FirehoseMember;
using test::map_memory;
using test::Processes;

constexpr std::size_t kBucket = std::size_t{64} << 10;

class FirehoseRecall : public testing::TestWithParam<const char*> {
 protected:
  pinion_firehose_options options_ = [] {
    pinion_firehose_options options{};
    options.bucket = kBucket;
    options.memory = 32 * kBucket;
    options.victims = 4 * kBucket;
    return options;
  }();
  TemporaryDirectory directory_;

  std::unique_ptr<FirehoseMember> join(unsigned process, unsigned processes) {
    return std::make_unique<FirehoseMember>(GetParam(), directory_.path(), process, processes, options_);
  }
  /// Runs `f(member)` in each process.
  void run(unsigned processes, const std::function<void(FirehoseMember&)>& f) {
    Processes all(processes, [&](unsigned process) { f(*join(process, processes)); });
    if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam();
  }
};

/// Memory of whole buckets.
char* map_buckets(std::size_t count) {
  char* const memory = map_memory((count + 1) * kBucket);
  return memory + (kBucket - reinterpret_cast<std::uintptr_t>(memory) % kBucket) % kBucket;
}

bool is_mapped(const void* memory, std::size_t bytes) {
  return ::msync(const_cast<void*>(memory), bytes, MS_ASYNC) == 0;
}

bool is_readable(const char* at) {
  char copy = 0;
  const iovec to{&copy, 1}, from{const_cast<char*>(at), 1};
  return ::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) == 1;
}

void put_word(FirehoseMember& member, unsigned to, std::uint64_t at, std::uint64_t value) {
  ASSERT_EQ(pinion_firehose_put(member.firehose, to, at, &value, sizeof value), 0) << pinion_last_error();
}
std::uint64_t word_at(const char* memory) {
  std::uint64_t value = 0;
  std::memcpy(&value, memory, sizeof value);
  return value;
}

/// A process that is killed in the end.
struct Doomed {
  explicit Doomed(pid_t which) : process(which) {}
  ~Doomed() { ::kill(process, SIGKILL); }
  Doomed(const Doomed&) = delete;
  Doomed& operator=(const Doomed&) = delete;
  const pid_t process;
};
/// It is stopped until then.
struct Stopped : Doomed {
  explicit Stopped(pid_t which) : Doomed(which) { EXPECT_TRUE(test::stop(process)); }
};

/// A process comes to rest where it may be stopped or killed: its thread of progress in a handler, its own
/// thread outside of all calls. Anywhere else it may hold a lock of libfabric's shm that its peers share.
/// Made before the processes are forked; one process rests.
class Rest {
 public:
  static constexpr unsigned kHandler = 0;

  Rest() {
    EXPECT_EQ(::pipe(at_rest_), 0);
    EXPECT_EQ(::pipe(over_), 0);
  }
  ~Rest() {
    for (const int file : {at_rest_[0], at_rest_[1], over_[0], over_[1]}) ::close(file);
  }
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;

  void add_to(pinion_firehose_options& options) {
    options.handlers[kHandler] = [](void* rest, pinion_firehose*, unsigned, const void*, std::size_t) {
      static_cast<Rest*>(rest)->stay();
    };
    options.handler_context = this;
  }
  /// The own thread rests; returns after end().
  void begin(FirehoseMember& member) {
    ASSERT_EQ(pinion_firehose_send(member.firehose, member.process(), kHandler, nullptr, 0), 0)
        << pinion_last_error();
    stay();
  }
  /// Another process, once both threads rest.
  void await() {
    take(at_rest_[0]);
    take(at_rest_[0]);
  }
  void end() {
    give(over_[1]);
    give(over_[1]);
  }

 private:
  void stay() {
    give(at_rest_[1]);
    take(over_[0]);
  }
  static void give(int file) { EXPECT_EQ(::write(file, "", 1), 1); }
  static void take(int file) {
    char byte = 0;
    EXPECT_EQ(::read(file, &byte, 1), 1);
  }

  int at_rest_[2], over_[2];
};

/// Puts until one hits: then the bucket is held.
void hold_by_put(FirehoseMember& member, unsigned to, std::uint64_t at, std::uint64_t value) {
  EXPECT_TRUE(eventually(member, [&] {
    const auto hits = member.statistics().hits;
    put_word(member, to, at, value);
    return member.statistics().hits > hits;
  }));
}

TEST_P(FirehoseRecall, MissesOnceForEachBucket) {
  run(3, [](FirehoseMember& member) {
    constexpr unsigned kBuckets = 10, kRounds = 20;
    constexpr unsigned kOrder[kBuckets] = {0, 3, 8, 1, 5, 2, 9, 7, 4, 6};  // no walk, which would ask ahead
    char* const mine = map_buckets(kBuckets);
    const auto all = member.exchange(mine);
    if (member.process() > 0) {
      for (unsigned round = 0; round < kRounds; ++round)
        for (unsigned i = 0; i < kBuckets; ++i) {
          const unsigned bucket = kOrder[i];
          put_word(member, 0, all[0] + bucket * kBucket + 8 * member.process(), 1000 * round + bucket);
        }
      const auto statistics = member.statistics();
      EXPECT_EQ(statistics.misses, kBuckets);
      EXPECT_EQ(statistics.riders, kBuckets);
      EXPECT_EQ(statistics.hits + statistics.waited + statistics.messaged, kBuckets * (kRounds - 1));
      EXPECT_EQ(statistics.refusals, 0U);
    }
    member.barrier();
    if (member.process() > 0) return;
    for (unsigned bucket = 0; bucket < kBuckets; ++bucket)
      for (unsigned process = 1; process < 3; ++process)
        EXPECT_EQ(word_at(mine + bucket * kBucket + 8 * process), 1000 * (kRounds - 1) + bucket);
    const auto statistics = member.statistics();
    EXPECT_EQ(statistics.pins, kBuckets);
    EXPECT_EQ(statistics.exposed_bytes, kBuckets * kBucket);
  });
}

TEST_P(FirehoseRecall, NeverMoreThanTheBound) {
  run(2, [this](FirehoseMember& member) {
    constexpr unsigned kBuckets = 100;
    char* const mine = map_buckets(kBuckets);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    std::mt19937 random(member.process());
    for (unsigned i = 0; i < 500; ++i)
      put_word(member, other, all[other] + random() % kBuckets * kBucket + 8 * (i % 100), i);
    member.barrier();
    const auto statistics = member.statistics();
    EXPECT_LE(statistics.exposed_peak_bytes, options_.memory + options_.victims);
    EXPECT_GT(statistics.hits, 0U);
    EXPECT_GT(statistics.unpins, 0U);
    member.barrier();
  });
}

TEST_P(FirehoseRecall, UnmappedMemoryIsHeldBackUntilPeersLetGo) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(2);
    const auto all = member.exchange(mine);
    if (member.process() == 1) hold_by_put(member, 0, all[0], 17);
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine), 17U);
      ASSERT_EQ(::munmap(mine, kBucket), 0);
      ASSERT_TRUE(eventually(member, [&] { return !is_mapped(mine, kBucket); }));
      EXPECT_EQ(member.statistics().exposed_bytes, 0U);
      EXPECT_GE(member.statistics().recalls, 1U);
      void* const anew = ::mmap(mine, kBucket, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      ASSERT_EQ(anew, mine);
    }
    member.barrier();
    if (member.process() == 1) put_word(member, 0, all[0] + 8, 18);
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine), 0U);
      EXPECT_EQ(word_at(mine + 8), 18U);
    }
    member.barrier();
  });
}

constexpr std::size_t kSegment = std::size_t{32} << 20;

/// Once a process.
bool reserve_arena() {
  static const bool reserved = process_arena().reserve(2 * kSegment, false);
  return reserved;
}

/// Memory of Pinion's own segments, the only memory that is exposed over `shm`.
class FirehoseArena : public FirehoseRecall {};
/// Over a provider whose writes no closed connection ends.
class FirehoseByAddress : public FirehoseRecall {};

// The provider writes through the process's page tables: without rights there, it would fail.
TEST_P(FirehoseArena, UnmappedMemoryKeepsItsRightsWhilePeersHoldIt) {
  ASSERT_TRUE(reserve_arena());
  run(2, [](FirehoseMember& member) {
    char* const mine = static_cast<char*>(process_heap().allocate(2 * kBucket, kBucket, true));
    ASSERT_NE(mine, nullptr);
    const auto all = member.exchange(mine);
    if (member.process() == 1) hold_by_put(member, 0, all[0], 17);
    member.barrier();
    if (member.process() == 0) {
      ASSERT_EQ(::munmap(mine, kBucket), 0);
      EXPECT_TRUE(is_readable(mine));
      EXPECT_TRUE(eventually(member, [&] { return member.statistics().exposed_bytes == 0; }));
      EXPECT_TRUE(is_readable(mine)) << "it may be a block again";
      EXPECT_TRUE(eventually(member, [&] { return ::munmap(mine, kBucket) == 0 && !is_readable(mine); }));
    }
    member.barrier();
    if (member.process() == 1) {
      const std::uint64_t value = 18;
      EXPECT_EQ(pinion_firehose_put(member.firehose, 0, all[0] + 8, &value, sizeof value), EFAULT);
      put_word(member, 0, all[0] + kBucket + 8, 18);
    }
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine + kBucket + 8), 18U);
    }
    member.barrier();
  });
}

bool is_resident(char* at) {
  unsigned char resident = 0;
  return ::mincore(at, 1, &resident) == 0 && (resident & 1) != 0;
}

TEST_P(FirehoseArena, HoldsWhatWasPut) {
  ASSERT_TRUE(reserve_arena());
  run(3, [](FirehoseMember& member) {
    constexpr unsigned kPuts = 400, kBuckets = 4;
    constexpr std::size_t kWords = kBuckets * kBucket / 8;
    char* const mine = static_cast<char*>(process_heap().allocate(3 * kBuckets * kBucket, kBucket, true));
    ASSERT_NE(mine, nullptr);
    char* const outside = map_buckets(1);
    const auto all = member.exchange(mine), others = member.exchange(outside);
    std::mt19937_64 random(member.process());
    std::map<std::pair<unsigned, std::size_t>, std::uint64_t> known;
    const auto at = [&](unsigned to, std::size_t word) {
      return all[to] + member.process() * kBuckets * kBucket + 8 * word;
    };
    for (unsigned i = 0; i < kPuts; ++i) {
      const unsigned to = (member.process() + 1 + static_cast<unsigned>(random() % 2)) % 3;
      const std::size_t word = random() % kWords;
      put_word(member, to, at(to, word), known[{to, word}] = random());
    }
    EXPECT_GT(member.statistics().hits, 0U);
    for (const auto& [where, value] : known) {
      std::uint64_t got = 0;
      ASSERT_EQ(pinion_firehose_get(member.firehose, where.first, at(where.first, where.second), &got, 8), 0);
      EXPECT_EQ(got, value);
    }
    // Memory beside the arena is hit on providers that check keys.
    const auto hits = member.statistics().hits;
    for (std::uint64_t i = 0; i < 20; ++i)
      put_word(member, (member.process() + 1) % 3, others[(member.process() + 1) % 3], i);
    if (GetParam() == std::string("shm")) {
      EXPECT_EQ(member.statistics().hits, hits);
    }
    member.barrier();
    EXPECT_EQ(word_at(outside), 19U);
    member.barrier();
  });
}

// The heap gives a segment back: its memory goes once the peer has let go.
TEST_P(FirehoseArena, ASegmentThatGoesIsRecalled) {
  ASSERT_TRUE(reserve_arena());
  run(2, [](FirehoseMember& member) {
    const auto take_segment = [](Pages& pages) {
      pages = process_arena().map(kSegment, kSegment);
      EXPECT_FALSE(pages.range.empty());
      return reinterpret_cast<char*>(pages.range.begin);
    };
    Pages pages;
    char* mine = take_segment(pages);
    auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    hold_by_put(member, other, all[other] + 2 * kBucket, 17);
    member.barrier();
    EXPECT_EQ(word_at(mine + 2 * kBucket), 17U);
    EXPECT_GT(member.statistics().exposed_bytes, 0U);
    process_arena().unmap(pages);
    EXPECT_EQ(member.statistics().exposed_bytes, 0U);
    EXPECT_FALSE(is_readable(mine + 2 * kBucket));
    member.barrier();
    mine = take_segment(pages);
    EXPECT_EQ(word_at(mine + 2 * kBucket), 0U) << "fresh from the kernel";
    all = member.exchange(mine);
    put_word(member, other, all[other] + 2 * kBucket, 18);
    member.barrier();
    EXPECT_EQ(word_at(mine + 2 * kBucket), 18U);
    member.barrier();
  });
}

// Its late write would land in memory that is still the old one.
TEST_P(FirehoseArena, MemoryStaysWhileAStoppedPeerLives) {
  ASSERT_TRUE(reserve_arena());
  options_.recall_timeout_ns = 100 * kMillisecond;
  Rest rest;
  rest.add_to(options_);
  Processes all(2, [&](unsigned process) {
    const auto joined = join(process, 2);
    FirehoseMember& member = *joined;
    char* const mine = static_cast<char*>(process_heap().allocate(2 * kBucket, kBucket, true));
    const auto addresses = member.exchange(mine);
    const auto numbers = member.exchange(reinterpret_cast<void*>(static_cast<std::uintptr_t>(::getpid())));
    if (process == 1) hold_by_put(member, 0, addresses[0], 17);
    member.barrier();
    if (process == 1) rest.begin(member);  // it is killed there
    rest.await();
    auto peer = std::make_unique<Stopped>(static_cast<pid_t>(numbers[1]));
    ASSERT_EQ(::munmap(mine, kBucket), 0);
    ASSERT_TRUE(eventually(member, [&] { return member.statistics().cut_off == 1; }));
    if (GetParam() == std::string("shm")) {
      EXPECT_GT(member.statistics().exposed_bytes, 0U);
      EXPECT_EQ(word_at(mine), 17U);
    }
    peer.reset();
    EXPECT_TRUE(eventually(member, [&] { return member.statistics().exposed_bytes == 0; }));
    EXPECT_TRUE(eventually(member, [&] { return ::munmap(mine, kBucket) == 0 && !is_readable(mine); }));
  });
  all.expect_killed(1);
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam();
}

// A peer that has cut this process off may be at a write still: its buckets stay until its process has ended.
TEST_P(FirehoseByAddress, MemoryStaysWhileAPeerLivesThatCutThisProcessOff) {
  ASSERT_TRUE(reserve_arena());
  options_.recall_timeout_ns = 100 * kMillisecond;
  Rest rest, last_rest;
  Processes all(2, [&](unsigned process) {
    (process == 0 ? rest : last_rest).add_to(options_);
    const auto joined = join(process, 2);
    FirehoseMember& member = *joined;
    char* const mine = static_cast<char*>(process_heap().allocate(2 * kBucket, kBucket, true));
    const auto addresses = member.exchange(mine);
    const auto numbers = member.exchange(reinterpret_cast<void*>(static_cast<std::uintptr_t>(::getpid())));
    const auto other = static_cast<pid_t>(numbers[1 - process]);
    hold_by_put(member, 1 - process, addresses[1 - process], 17);
    member.barrier();
    if (process == 1) {
      // The other one holds memory here, and is silent.
      rest.await();
      EXPECT_TRUE(test::stop(other));
      EXPECT_EQ(::munmap(mine, kBucket), 0);
      EXPECT_TRUE(eventually(member, [&] { return member.statistics().cut_off == 1; }));
      EXPECT_EQ(::kill(other, SIGCONT), 0);
      rest.end();
      last_rest.begin(member);  // it is killed there
    }
    auto peer = std::make_unique<Doomed>(other);
    rest.begin(member);
    const std::uint64_t value = 18;
    EXPECT_TRUE(eventually(member, [&] {
      return pinion_firehose_put(member.firehose, 1, addresses[1], &value, sizeof value) == ECONNRESET;
    }));
    ASSERT_EQ(::munmap(mine, kBucket), 0);
    ASSERT_TRUE(eventually(member, [&] { return member.statistics().cut_off == 1; })) << "it held nothing";
    EXPECT_EQ(word_at(mine), 17U);
    EXPECT_EQ(member.statistics().exposed_bytes, kBucket);
    last_rest.await();
    peer.reset();
    EXPECT_TRUE(eventually(member, [&] { return member.statistics().exposed_bytes == 0; }));
  });
  all.expect_killed(1);
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam();
}

// The segment is registered for the process itself, beyond the buckets that peers hold.
TEST_P(FirehoseArena, DroppedMemoryKeepsItsPages) {
  ASSERT_TRUE(reserve_arena());
  run(2, [](FirehoseMember& member) {
    char* const mine = static_cast<char*>(process_heap().allocate(4 * kBucket, kBucket, true));
    ASSERT_NE(mine, nullptr);
    std::memset(mine, 7, 4 * kBucket);
    const auto all = member.exchange(mine);
    pinion_domain* domain = nullptr;
    pinion_lease lease = PINION_LEASE_INIT;
    if (member.process() == 1) {
      hold_by_put(member, 0, all[0], 17);
    } else {
      ASSERT_EQ(pinion_domain_open("emulated", "none", &domain), 0) << pinion_last_error();
      ASSERT_EQ(pinion_acquire(domain, mine, 4 * kBucket, PINION_ACCESS_READ, &lease), 0);
      EXPECT_EQ(pinion_release(&lease), 0);
    }
    member.barrier();
    if (member.process() == 0) {
      ASSERT_EQ(::madvise(mine, 4 * kBucket, MADV_DONTNEED), 0);
      EXPECT_TRUE(is_resident(mine));
      EXPECT_TRUE(is_resident(mine + 3 * kBucket));
      EXPECT_EQ(word_at(mine), 0U);
      EXPECT_EQ(word_at(mine + 3 * kBucket), 0U);
      EXPECT_EQ(pinion_domain_close(domain), 0) << pinion_last_error();
    }
    member.barrier();
  });
}

TEST_P(FirehoseRecall, DroppedMemoryReadsZeroAndStaysHeld) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(2);
    const auto all = member.exchange(mine);
    if (member.process() == 1) hold_by_put(member, 0, all[0] + 64, 17);
    member.barrier();
    if (member.process() == 0) {
      ASSERT_EQ(::madvise(mine, 2 * kBucket, MADV_DONTNEED), 0);
      EXPECT_EQ(word_at(mine + 64), 0U);
      EXPECT_EQ(member.statistics().recalls, 0U);
    }
    member.barrier();
    if (member.process() == 1) {
      const auto hits = member.statistics().hits;
      put_word(member, 0, all[0] + 72, 18);
      EXPECT_EQ(member.statistics().hits, hits + 1);
    }
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine + 72), 18U);
    }
    member.barrier();
  });
}

TEST_P(FirehoseRecall, ReplacedMovedAndProtectedMemoryWaitsForPeers) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(3);
    const auto all = member.exchange(mine);
    if (member.process() == 1)
      for (const unsigned i : {0u, 2u, 1u}) hold_by_put(member, 0, all[0] + i * kBucket, 17);  // no walk
    member.barrier();
    char* moved = nullptr;
    if (member.process() == 0) {
      ASSERT_EQ(::mmap(mine, kBucket, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                mine);
      char* const place = map_buckets(1);
      moved = static_cast<char*>(
          ::mremap(mine + kBucket, kBucket, kBucket, MREMAP_MAYMOVE | MREMAP_FIXED, place));
      ASSERT_EQ(moved, place);
      ASSERT_EQ(::mprotect(mine + 2 * kBucket, kBucket, PROT_READ), 0);
      EXPECT_EQ(member.statistics().exposed_bytes, 0U);
    }
    member.barrier();
    if (member.process() == 1) {
      const std::uint64_t value = 18;
      put_word(member, 0, all[0] + 8, value);
      for (unsigned i = 1; i < 3; ++i)
        EXPECT_EQ(pinion_firehose_put(member.firehose, 0, all[0] + i * kBucket, &value, sizeof value),
                  EFAULT);
    }
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine), 0U);
      EXPECT_EQ(word_at(mine + 8), 18U);
      EXPECT_EQ(word_at(moved), 17U);
      EXPECT_EQ(word_at(mine + 2 * kBucket), 17U);
    }
    member.barrier();
  });
}

// The change may wait for peers itself, whose messages arrive by the same progress.
TEST_P(FirehoseRecall, AtomicsOnChangingMemoryAreServedAfterTheChange) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(2);
    const auto all = member.exchange(mine);
    const Range changing = Range::of(mine, kBucket);
    if (member.process() == 0) {
      EXPECT_EQ(memory_events::begin({changing}), Answer::proceed);
    }
    member.barrier();
    std::atomic<bool> over{false};
    std::thread atomic;
    if (member.process() == 1) {
      atomic = std::thread([&] {
        std::uint64_t old = 17;
        EXPECT_EQ(pinion_firehose_atomic(member.firehose, 0, all[0], 8, PINION_FIREHOSE_ADD, 5, 0, &old), 0)
            << pinion_last_error();
        EXPECT_EQ(old, 0U);
        over = true;
      });
      EXPECT_TRUE(eventually(member, [&] { return member.statistics().atomics == 1; }));
      for (std::uint64_t i = 1; i <= 100; ++i) put_word(member, 0, all[0] + kBucket, i);
      EXPECT_FALSE(over.load());
    }
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine), 0U);
      EXPECT_EQ(word_at(mine + kBucket), 100U);
      memory_events::end(changing);
    }
    if (atomic.joinable()) atomic.join();
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(mine), 5U);
    }
    member.barrier();
  });
}

// Only the thread in the handler would hear the peers' releases.
TEST_P(FirehoseRecall, AHandlerThatReplacesHeldMemoryFailsAtOnce) {
  static char* held = nullptr;
  static std::atomic<int> result{-1};
  options_.handlers[1] = [](void*, pinion_firehose*, unsigned, const void*, std::size_t) {
    void* const anew =
        ::mmap(held, kBucket, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    result = anew == held ? 0 : errno;
  };
  run(2, [](FirehoseMember& member) {
    held = map_buckets(1);
    const auto all = member.exchange(held);
    if (member.process() == 1) {
      hold_by_put(member, 0, all[0], 17);
      ASSERT_EQ(pinion_firehose_send(member.firehose, 0, 1, nullptr, 0), 0);
    } else {
      ASSERT_TRUE(eventually(member, [] { return result >= 0; }));
      EXPECT_EQ(result, ENOMEM);
      EXPECT_EQ(member.statistics().cut_off, 0U);
      EXPECT_EQ(word_at(held), 17U);
    }
    member.barrier();
    if (member.process() == 1) put_word(member, 0, all[0], 18);
    member.barrier();
    if (member.process() == 0) {
      EXPECT_EQ(word_at(held), 18U);
    }
    member.barrier();
  });
}

/// Over TCP, where a connection can be closed.
class FirehoseCutOff : public FirehoseRecall {};

TEST_P(FirehoseCutOff, ASilentPeersMemoryComesBack) {
  options_.recall_timeout_ns = 200 * kMillisecond;
  Processes all(2, [&](unsigned process) {
    const auto joined = join(process, 2);
    FirehoseMember& member = *joined;
    char* const mine = map_buckets(1);
    const auto addresses = member.exchange(mine);
    const auto numbers = member.exchange(reinterpret_cast<void*>(static_cast<std::uintptr_t>(::getpid())));
    if (process == 1) hold_by_put(member, 0, addresses[0], 17);
    member.barrier();
    if (process == 1) {
      for (;;) ::pause();
    }
    const Stopped peer(static_cast<pid_t>(numbers[1]));
    const std::uint64_t value = 18;
    pinion_firehose_handle waits;
    ASSERT_EQ(pinion_firehose_put_nb(member.firehose, 1, addresses[1], &value, sizeof value, &waits), 0);
    errno = 0;
    EXPECT_EQ(::mmap(mine, kBucket, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(word_at(mine), 17U);
    ASSERT_TRUE(eventually(member, [&] { return member.statistics().cut_off == 1; }));
    EXPECT_EQ(pinion_firehose_put(member.firehose, 1, addresses[1], &value, sizeof value), ECONNRESET);
    EXPECT_EQ(pinion_firehose_wait(member.firehose, &waits), ECONNRESET);
    EXPECT_EQ(pinion_firehose_quiet(member.firehose), 0);
    ASSERT_EQ(::munmap(mine, kBucket), 0);
    EXPECT_TRUE(eventually(member, [&] { return !is_mapped(mine, kBucket); }));
    EXPECT_EQ(member.statistics().exposed_bytes, 0U);
  });
  all.expect_killed(1);
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam();
}

// Peers hold three quarters of what the process may register; a lease of its own needs half.
TEST_P(FirehoseRecall, LeasesThatLackRoomGetItFromPeers) {
  constexpr std::size_t kHeld = 48, kOwn = 32;
  options_.memory = kHeld * kBucket;
  Processes all(2, [&](unsigned process) {
    const std::string settings = "limit=" + std::to_string(64 * kBucket);
    FirehoseMember member(GetParam(), directory_.path(), process, 2, options_, settings.c_str());
    char* const mine = map_buckets(kHeld);
    const auto addresses = member.exchange(mine);
    if (process == 1)
      for (unsigned i = 0; i < kHeld; ++i) hold_by_put(member, 0, addresses[0] + i * kBucket, 17);
    member.barrier();
    if (process == 0) {
      ASSERT_EQ(member.statistics().exposed_bytes, kHeld * kBucket);
      char* const local = map_buckets(kOwn);
      pinion_domain* domain = nullptr;
      ASSERT_EQ(pinion_domain_open("emulated", nullptr, &domain), 0) << pinion_last_error();
      pinion_lease lease = PINION_LEASE_INIT;
      // A peer on a busy machine may take longer than one acquire waits.
      ASSERT_TRUE(eventually(member, [&] {
        return pinion_acquire(domain, local, kOwn * kBucket, PINION_ACCESS_READ, &lease) == 0;
      })) << pinion_last_error();
      // The last one that made room is counted a moment longer.
      EXPECT_TRUE(
          eventually(member, [&] { return member.statistics().exposed_bytes <= (64 - kOwn) * kBucket; }));
      EXPECT_EQ(pinion_release(&lease), 0);
      EXPECT_EQ(pinion_domain_close(domain), 0);
    }
    member.barrier();
  });
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam();
}

TEST_P(FirehoseRecall, AForkedChildHoldsNothing) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(1);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    hold_by_put(member, other, all[other], 17);
    member.barrier();
    const pid_t child = ::fork();
    if (child == 0) {
      const std::uint64_t value = 1;
      const bool refused =
          pinion_firehose_put(member.firehose, other, all[other], &value, sizeof value) == ESHUTDOWN;
      const bool unmaps = ::munmap(mine, kBucket) == 0 && !is_mapped(mine, kBucket);
      ::_exit(refused && unmaps && pinion_firehose_close(member.firehose) == 0 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    put_word(member, other, all[other] + 8, 18);
    member.barrier();
    EXPECT_EQ(word_at(mine), 17U);
    EXPECT_EQ(word_at(mine + 8), 18U);
    member.barrier();
  });
}

TEST_P(FirehoseRecall, ABucketThatIsAccessibleInPart) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(1);
    // Kept from other threads' mappings.
    ::mprotect(mine, kBucket / 4, PROT_NONE);
    ::mprotect(mine + kBucket / 2, kBucket / 4, PROT_NONE);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    for (unsigned round = 0; round < 2; ++round)
      for (unsigned quarter = 0; quarter < 4; ++quarter) {
        const std::uint64_t value = 17 + round + quarter;
        EXPECT_EQ(pinion_firehose_put(member.firehose, other, all[other] + quarter * kBucket / 4 + 8, &value,
                                      sizeof value),
                  quarter % 2 ? 0 : EFAULT);
      }
    member.barrier();
    EXPECT_EQ(word_at(mine + kBucket / 4 + 8), 19U);
    EXPECT_EQ(word_at(mine + 3 * kBucket / 4 + 8), 21U);
    member.barrier();
  });
}

TEST_P(FirehoseRecall, SmallMappingsBesideLargerOnesAreHit) {
  run(2, [](FirehoseMember& member) {
    constexpr std::size_t kPage = kBucket / 16;
    char* const mine = map_buckets(1);
    ::mprotect(mine + kPage, kPage, PROT_NONE);  // one page, a hole, and the others
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    hold_by_put(member, other, all[other] + 2 * kPage, 17);
    hold_by_put(member, other, all[other] + 8, 17);
    const auto before = member.statistics();
    const std::uint64_t value = 17;
    EXPECT_EQ(pinion_firehose_put(member.firehose, other, all[other] + kPage, &value, sizeof value), EFAULT);
    EXPECT_EQ(member.statistics().hits, before.hits) << "it went by message";
    EXPECT_EQ(member.statistics().messaged, before.messaged + 1);
    member.barrier();
    EXPECT_EQ(word_at(mine + 8), 17U);
    EXPECT_EQ(member.statistics().exposed_bytes, kBucket - kPage);
    member.barrier();
  });
}

// The heap's end, for one: the bucket was registered before the memory was there.
TEST_P(FirehoseRecall, MemoryThatIsMappedLaterIsHitAtLast) {
  run(2, [](FirehoseMember& member) {
    char* const mine = map_buckets(1);
    ::mprotect(mine + kBucket / 2, kBucket / 2, PROT_NONE);
    const auto all = member.exchange(mine);
    const unsigned other = 1 - member.process();
    hold_by_put(member, other, all[other], 17);
    member.barrier();
    ::mprotect(mine + kBucket / 2, kBucket / 2, PROT_READ | PROT_WRITE);
    member.barrier();
    hold_by_put(member, other, all[other] + kBucket / 2 + 8, 17);
    member.barrier();
    EXPECT_EQ(word_at(mine + kBucket / 2 + 8), 17U);
    EXPECT_EQ(member.statistics().exposed_bytes, kBucket);
    member.barrier();
  });
}

TEST_P(FirehoseRecall, MemoryOutsideOfSegmentsIsOutOfReach) {
  char* const memory = map_buckets(4);
  const pinion_range segment{memory + kBucket + 4096, kBucket};
  options_.segments = &segment;
  options_.segment_count = 1;
  run(2, [&](FirehoseMember& member) {
    const unsigned other = 1 - member.process();
    const auto at = reinterpret_cast<std::uint64_t>(memory);
    const std::uint64_t value = 17;
    const auto put = [&](std::uint64_t address) {
      return pinion_firehose_put(member.firehose, other, address, &value, sizeof value);
    };
    EXPECT_EQ(put(at), EPERM);
    EXPECT_EQ(put(at + kBucket), EPERM) << "in a bucket that is exposed in part";
    EXPECT_EQ(put(at + kBucket + 4096), 0);
    EXPECT_EQ(put(at + 2 * kBucket + 4096 - 8), 0);
    EXPECT_EQ(put(at + 2 * kBucket + 4096 - 4), EPERM);
    // Pieces of a call, which travel together at times: those inside go with the others, or stay behind.
    std::array<std::uint64_t, 3> words{17, 18, 19};
    const std::array<pinion_firehose_piece, 3> pieces{{{&words[0], at + kBucket + 4096, 8},
                                                       {&words[1], at + 8, 8},
                                                       {&words[2], at + kBucket + 4096 - 4, 8}}};
    for (int call = 0; call < 4; ++call)
      for (const auto begin : {pinion_firehose_put_v, pinion_firehose_get_v}) {
        pinion_firehose_handle handle;
        ASSERT_EQ(begin(member.firehose, other, pieces.data(), pieces.size(), &handle), 0);
        EXPECT_EQ(pinion_firehose_wait(member.firehose, &handle), EPERM);
      }
    EXPECT_EQ(words[1], 18U);
    EXPECT_EQ(words[2], 19U);
    member.barrier();
    EXPECT_EQ(word_at(memory + kBucket + 4096), 17U);
    EXPECT_EQ(word_at(memory + kBucket), 0U);
    EXPECT_EQ(word_at(memory + 8), 0U);
    EXPECT_EQ(word_at(memory + kBucket + 4096 - 8), 0U);
  });
}

// ---- a random mix

/// A process's memory: slots of a quarter of a bucket, which their one user among the peers unmaps and maps
/// anew by messages, while others use their neighbours.
class Mix {
 public:
  static constexpr std::size_t kSlot = kBucket / 4;
  static constexpr unsigned kSlots = 48;

  explicit Mix(FirehoseMember& member)
      : member_(member), mine_(map_buckets(kSlots / 4)), remapper_([this] { remap(); }) {
    addresses_ = member.exchange(mine_);
  }
  ~Mix() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    remapper_.join();
  }

  void remap_wanted(unsigned from, unsigned slot) {
    const std::lock_guard lock(mutex_);
    wanted_.push_back({from, slot});
  }
  void remapped() { remapped_.fetch_add(1); }

  void run(unsigned operations) {
    std::mt19937 random(member_.process() + 1);
    for (unsigned i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      const unsigned to = other(static_cast<unsigned>(random()));
      // Its slots of that peer's are its own alone.
      const unsigned slot =
          static_cast<unsigned>(random()) % (kSlots / member_.processes()) * member_.processes() +
          member_.process();
      step(to, slot, random);
    }
  }

 private:
  using Contents = std::vector<char>;

  unsigned other(unsigned random) const {
    return (member_.process() + 1 + random % (member_.processes() - 1)) % member_.processes();
  }

  void step(unsigned to, unsigned slot, std::mt19937& random) {
    Contents& known = known_[{to, slot}];
    if (known.empty()) known.resize(kSlot);
    const std::uint64_t base = addresses_[to] + slot * kSlot;
    const std::size_t at = random() % kSlot / 8 * 8;
    const std::size_t bytes = std::min<std::size_t>(kSlot - at, 8 + random() % 3000);
    const unsigned what = random() % 64;
    if (what == 0) {
      const std::uint64_t before = remapped_.load();
      ASSERT_EQ(pinion_firehose_send(member_.firehose, to, 0, &slot, sizeof slot), 0) << pinion_last_error();
      ASSERT_TRUE(eventually(member_, [&] { return remapped_.load() > before; }));
      known.assign(kSlot, 0);
    } else if (what < 26) {
      for (std::size_t i = at; i < at + bytes; ++i) known[i] = static_cast<char>(random());
      ASSERT_EQ(pinion_firehose_put(member_.firehose, to, base + at, &known[at], bytes), 0)
          << pinion_last_error();
    } else if (what < 32) {
      std::uint64_t old = 0, expected = 0;
      std::memcpy(&expected, &known[at], 8);
      const std::uint64_t next = expected + what;
      ASSERT_EQ(
          pinion_firehose_atomic(member_.firehose, to, base + at, 8, PINION_FIREHOSE_ADD, what, 0, &old), 0);
      EXPECT_EQ(old, expected);
      std::memcpy(&known[at], &next, 8);
    } else {
      Contents got(bytes);
      ASSERT_EQ(pinion_firehose_get(member_.firehose, to, base + at, got.data(), bytes), 0)
          << pinion_last_error();
      EXPECT_EQ(std::memcmp(got.data(), &known[at], bytes), 0) << "slot " << slot << " of process " << to;
    }
  }

  void remap() {
    for (;;) {
      std::pair<unsigned, unsigned> next;
      {
        const std::lock_guard lock(mutex_);
        if (wanted_.empty() && over_) return;
        next = wanted_.empty() ? std::pair{~0U, 0U} : wanted_.front();
        if (!wanted_.empty()) wanted_.pop_front();
      }
      if (next.first == ~0U) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        continue;
      }
      remap_one(mine_ + next.second * kSlot, next.second);
      const unsigned slot = next.second;
      EXPECT_EQ(pinion_firehose_send(member_.firehose, next.first, 1, &slot, sizeof slot), 0);
    }
  }

  static void remap_one(char* memory, unsigned slot) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (slot % 2 == 0) {
      EXPECT_EQ(::mmap(memory, kSlot, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED, -1, 0), memory);
      return;
    }
    EXPECT_EQ(::munmap(memory, kSlot), 0);
    while (::mmap(memory, kSlot, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED_NOREPLACE, -1, 0) != memory)
      std::this_thread::yield();
  }

  FirehoseMember& member_;
  char* const mine_;
  std::vector<std::uint64_t> addresses_;
  std::map<std::pair<unsigned, unsigned>, Contents> known_;
  std::atomic<std::uint64_t> remapped_{0};
  std::mutex mutex_;  ///< guards the next
  std::deque<std::pair<unsigned, unsigned>> wanted_;
  bool over_ = false;
  std::thread remapper_;
};

#ifdef PINION_TEST_FULL
constexpr unsigned kOperations = 400'000;
#else
constexpr unsigned kOperations = 2000;
#endif
/// Each operation of `sockets` takes it some milliseconds.
unsigned operations_of(const std::string& provider) {
  return provider == "sockets" ? kOperations / 8 : kOperations;
}

TEST_P(FirehoseRecall, RandomMixWithMemoryThatComesAndGoes) {
  // Room for two thirds of what is used.
  options_.memory = 8 * kBucket;
  static std::atomic<Mix*> mix{nullptr};
  options_.handlers[0] = [](void*, pinion_firehose*, unsigned from, const void* payload, std::size_t) {
    mix.load()->remap_wanted(from, *static_cast<const unsigned*>(payload));
  };
  options_.handlers[1] = [](void*, pinion_firehose*, unsigned, const void*, std::size_t) {
    mix.load()->remapped();
  };
  run(3, [](FirehoseMember& member) {
    Mix own(member);
    mix = &own;
    member.barrier();
    own.run(operations_of(GetParam()));
    member.barrier();
    const auto statistics = member.statistics();
    EXPECT_GT(statistics.hits, 0U);
    const auto recalls = member.exchange(reinterpret_cast<void*>(statistics.recalls));
    EXPECT_GT(std::accumulate(recalls.begin(), recalls.end(), std::uint64_t{0}), 0U);
    EXPECT_EQ(statistics.cut_off, 0U);
    EXPECT_LE(statistics.exposed_peak_bytes, 12 * kBucket);
    member.barrier();
  });
}

#ifdef PINION_TEST_FULL
const auto kProviders = testing::Values("tcp;ofi_rxm", "sockets");
#else
const auto kProviders = testing::Values("tcp;ofi_rxm");
#endif
INSTANTIATE_TEST_SUITE_P(Providers, FirehoseRecall, kProviders,
                         [](const auto& info) { return test::test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Providers, FirehoseArena, testing::Values("tcp;ofi_rxm", "shm"),
                         [](const auto& info) { return test::test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Providers, FirehoseByAddress, testing::Values("shm"),
                         [](const auto& info) { return test::test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Providers, FirehoseCutOff, testing::Values("tcp;ofi_rxm", "sockets"),
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace pinion::firehose
