// Memory that is prepared by the C API (pinion_prepare): the registered memory, the time it stays so, and the
// end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "node/stop_request.h"
#include "pinion/pinion.h"
#include "prepare/preparation_crew.h"
#include "support/eventually.h"
#include "support/held_faults.h"
#include "support/in_child.h"
#include "support/program_device.h"

namespace {

using pinion::kSecond;
using pinion::monotonic_now;
using pinion::PreparationCrew;
using pinion::Time;
using namespace pinion::test;

constexpr std::uint64_t kForEver = UINT64_MAX;

/// Holds back all threads that pass it, until it opens.
class Barrier {
 public:
  void pass() {
    ++arrived;
    while (!open_) std::this_thread::yield();
  }
  void open() { open_ = true; }
  std::atomic<int> arrived{0};

 private:
  std::atomic<bool> open_{false};
};

/// Memory that begins where a piece of two pages does.
class Heap {
 public:
  explicit Heap(std::size_t pages, int rights = PROT_READ | PROT_WRITE)
      : all_(pages + 1, rights),
        odd_(reinterpret_cast<std::uintptr_t>(all_.page(0)) / kPage % 2),
        bytes_(pages * kPage) {}
  char* page(std::size_t i) const { return all_.page(i + odd_); }
  std::size_t bytes() const { return bytes_; }

 private:
  const Memory all_;
  const std::size_t odd_, bytes_;
};

/// The kernel's flags of the mapping that begins with the memory; empty where it lists them otherwise.
std::string flags_of(const Memory& memory) {
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<std::uintptr_t>(memory.page(0)) << '-';
  std::ifstream maps("/proc/self/smaps");
  std::string line, flags;
  bool ours = false;
  while (std::getline(maps, line) && flags.empty()) {
    if (line.find('-') != std::string::npos && line.find(' ') > 8 && line.rfind("VmFlags", 0) != 0)
      ours |= line.rfind(begin.str(), 0) == 0;
    if (ours && line.rfind("VmFlags:", 0) == 0) flags = line;
  }
  return flags;
}

class Preparing : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("PINION"); }
  void TearDown() override {
    if (preparation_ != nullptr) {
      EXPECT_EQ(pinion_preparation_end(preparation_), 0) << pinion_last_error();
    }
    if (domain_ != nullptr) {
      EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    }
    while (pinion_stop() == 0) {
    }
    EXPECT_EQ(operations_.live(), 0u);
  }

  /// Only leased memory stays registered.
  void start(const char* options = "retention=on-demand") {
    ASSERT_EQ(pinion_start(options), 0) << pinion_last_error();
    ASSERT_EQ(pinion_domain_open_operations(&operations_.asked, &domain_), 0) << pinion_last_error();
  }
  /// Prepares in pieces of two pages.
  int prepare(const Heap& memory, unsigned threads = 1, unsigned access = PINION_ACCESS_WRITE) {
    const pinion_range range{memory.page(0), memory.bytes()};
    pinion_prepare_options options{};
    options.size = sizeof options;
    options.access = access;
    options.threads = threads;
    options.piece_bytes = 2 * kPage;
    return pinion_prepare(domain_, &range, 1, &options, &preparation_);
  }
  /// The third piece waits in the program's operation.
  void prepare_up_to(Barrier& barrier, const Heap& memory) {
    operations_.refuse = [&barrier](const Operations::Live&, std::size_t live) {
      if (live == 3) barrier.pass();
      return 0;
    };
    ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
    ASSERT_TRUE(eventually([&barrier] { return barrier.arrived > 0; }));
  }
  int ended() { return pinion_preparation_wait(preparation_, kForEver); }
  pinion_preparation_state state() const {
    pinion_preparation_state state{};
    state.size = sizeof state;
    EXPECT_EQ(pinion_preparation_poll(preparation_, &state), 0) << pinion_last_error();
    return state;
  }
  void end() {
    EXPECT_EQ(pinion_preparation_end(preparation_), 0) << pinion_last_error();
    preparation_ = nullptr;
  }
  bool is_registered(const void* address, std::size_t bytes, unsigned access = PINION_ACCESS_WRITE) {
    pinion_lease lease = PINION_LEASE_INIT;
    return pinion_try_acquire(domain_, address, bytes, access, &lease) == 0 && pinion_release(&lease) == 0;
  }

  Operations operations_;
  pinion_domain* domain_ = nullptr;
  pinion_preparation* preparation_ = nullptr;
};

TEST(PreparationCrew, ItsOnlyThreadGoesOnBesideACallerThatStillLaunches) {
  PreparationCrew crew;
  crew.join();
  crew.join();
  EXPECT_EQ(crew.want(1), 0u);
  EXPECT_TRUE(crew.leaves());
  EXPECT_FALSE(crew.leaves());
  EXPECT_FALSE(crew.end_launch());
  EXPECT_TRUE(crew.end());
}

TEST(PreparationCrew, TheCallerIsTheLastWhereAllThreadsEndedBefore) {
  PreparationCrew crew;
  crew.join();
  EXPECT_EQ(crew.want(2), 0u);
  EXPECT_FALSE(crew.end());
  EXPECT_TRUE(crew.end_launch());
}

TEST(PreparationCrew, ThreadsThatAreMissingAreCountedOnceAllAreLaunched) {
  PreparationCrew crew;
  crew.join();
  EXPECT_FALSE(crew.end_launch());
  EXPECT_EQ(crew.want(3), 2u);
}

TEST_F(Preparing, WhatIsReadyIsRegisteredInPiecesUntilItsEnd) {
  start();
  const Heap memory(9);
  ASSERT_EQ(prepare(memory, 3), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  const pinion_preparation_state ready = state();
  EXPECT_EQ(ready.error, 0);
  EXPECT_EQ(ready.bytes, 9 * kPage);
  EXPECT_EQ(ready.prepared_bytes, 9 * kPage);
  EXPECT_EQ(ready.left_ns, 0u);
  for (const Operations::Live& call : operations_.calls()) EXPECT_LE(call.bytes, 2 * kPage);
  const std::size_t calls = operations_.calls().size();
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < 9; ++i) EXPECT_TRUE(is_registered(memory.page(i), kPage));
  EXPECT_EQ(operations_.calls().size(), calls);
  EXPECT_EQ(operations_.live(), calls);
  end();
  EXPECT_EQ(operations_.live(), 0u) << "on demand nothing stays beyond its leases";
}

// The buffer's pages are on both sides of a multiple of a piece.
TEST_F(Preparing, ABufferOfAPieceIsOneRegistration) {
  start();
  const Heap memory(4);
  const pinion_range ranges[] = {{memory.page(1), 2 * kPage}, {memory.page(3), kPage}};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.piece_bytes = 2 * kPage;
  ASSERT_EQ(pinion_prepare(domain_, ranges, 2, &options, &preparation_), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  EXPECT_TRUE(is_registered(memory.page(1), 2 * kPage));
  EXPECT_TRUE(is_registered(memory.page(3), kPage));
}

// Its first and its last byte lie inside of pages.
TEST_F(Preparing, AnUnalignedBufferOfAPieceIsOneRegistration) {
  start();
  const Heap memory(4);
  const pinion_range range{memory.page(0) + 100, 2 * kPage};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.piece_bytes = 2 * kPage;
  ASSERT_EQ(pinion_prepare(domain_, &range, 1, &options, &preparation_), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  EXPECT_TRUE(is_registered(memory.page(0) + 100, 2 * kPage));
}

TEST_F(Preparing, MemoryIsPresentBeforeItIsRegistered) {
  const Heap memory(64);
  operations_.asked.flags = PINION_DEVICE_PINS_NOTHING;  // so the device's path faults nothing in
  operations_.refuse = [](const Operations::Live& call, std::size_t) {
    unsigned char present[2];
    EXPECT_EQ(::mincore(call.address, call.bytes, present), 0);
    EXPECT_TRUE(std::all_of(present, present + call.bytes / kPage, [](unsigned char p) { return p & 1; }));
    return 0;
  };
  start();
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  EXPECT_EQ(ended(), 0) << pinion_last_error();
}

// By default: threads come and go as the search wants them.
TEST_F(Preparing, LargeMemoryKeepsItsContents) {
  start();
  const Memory memory((std::size_t{160} << 20) / kPage);
  for (std::size_t i = 0; i < memory.bytes() / kPage; i += 37) *memory.page(i) = static_cast<char>(i);
  const pinion_range range{memory.page(0), memory.bytes()};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  ASSERT_EQ(pinion_prepare(domain_, &range, 1, &options, &preparation_), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  EXPECT_EQ(state().prepared_bytes, memory.bytes());
  for (std::size_t i = 0; i < memory.bytes() / kPage; ++i) {
    ASSERT_EQ(*memory.page(i), i % 37 == 0 ? static_cast<char>(i) : 0) << i;
    ASSERT_TRUE(is_registered(memory.page(i), 1)) << i;
  }
  const std::size_t pieces = operations_.calls().size();
  EXPECT_GE(pieces, 2u);
  EXPECT_LE(pieces, 11u) << "pieces of 16 MiB and more";
}

// A large piece is faulted in by several threads, and is one registration nevertheless.
TEST_F(Preparing, ALargePieceIsOneRegistration) {
  start();
  const Memory memory((std::size_t{48} << 20) / kPage);
  const pinion_range range{memory.page(0), memory.bytes()};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.threads = 4;
  options.piece_bytes = memory.bytes();
  ASSERT_EQ(pinion_prepare(domain_, &range, 1, &options, &preparation_), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  EXPECT_EQ(operations_.calls().size(), 1u);
  EXPECT_TRUE(is_registered(memory.page(0), memory.bytes()));
}

TEST_F(Preparing, AFailureRollsAllBackAndIsNamed) {
  start("retention=leave-pinned");
  const Heap memory(16);
  operations_.refuse = [](const Operations::Live&, std::size_t live) { return live == 5 ? EIO : 0; };
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  EXPECT_EQ(ended(), EIO);
  EXPECT_NE(std::string(pinion_last_error()).find("refuses to register"), std::string::npos)
      << pinion_last_error();
  EXPECT_EQ(operations_.live(), 0u) << "leave-pinned keeps what transfers used, not what was undone";
  EXPECT_EQ(state().error, EIO);
  EXPECT_EQ(state().prepared_bytes, 0u);
}

TEST_F(Preparing, MemoryThatIsNotThereFails) {
  start();
  const Heap read_only(4, PROT_READ);
  ASSERT_EQ(prepare(read_only), 0) << pinion_last_error();
  EXPECT_EQ(ended(), EFAULT);
  EXPECT_EQ(operations_.calls().size(), 0u);
}

TEST_F(Preparing, ReadOnlyMemoryIsPreparedForReading) {
  operations_.asked.flags = PINION_DEVICE_PRIVATE;  // asked for all rights first
  operations_.refuse = [](const Operations::Live& call, std::size_t) {
    return call.access == PINION_ACCESS_READ ? 0 : EFAULT;
  };
  start();
  const Heap read_only(4, PROT_READ);
  ASSERT_EQ(prepare(read_only, 1, PINION_ACCESS_READ), 0) << pinion_last_error();
  EXPECT_EQ(ended(), 0) << pinion_last_error();
  EXPECT_TRUE(is_registered(read_only.page(0), kPage, PINION_ACCESS_READ));
}

TEST_F(Preparing, ItIsUnderWayUntilItIsCancelled) {
  start("retention=leave-pinned");
  const Heap memory(16);
  Barrier barrier;
  prepare_up_to(barrier, memory);
  EXPECT_EQ(pinion_preparation_wait(preparation_, 0), ETIMEDOUT);
  const pinion_preparation_state now = state();
  EXPECT_EQ(now.error, EINPROGRESS);
  EXPECT_EQ(now.prepared_bytes, 6 * kPage);
  EXPECT_LT(now.left_ns, kForEver);
  EXPECT_EQ(pinion_domain_close(domain_), EBUSY);
  EXPECT_EQ(pinion_preparation_cancel(preparation_), 0);
  barrier.open();
  EXPECT_EQ(ended(), ECANCELED);
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(Preparing, ThreadsAreAtMostThoseAskedFor) {
  // A device whose registrations meet: a lock of the test's device would keep them apart.
  static Barrier* barrier;
  operations_.asked.register_memory = [](void*, void*, std::size_t, unsigned, pinion_registration* made) {
    static std::atomic<std::uint64_t> handles{0};
    made->handle = ++handles;
    barrier->pass();
    return 0;
  };
  operations_.asked.deregister_memory = [](void*, std::uint64_t) { return 0; };
  start();
  const Heap memory(32);
  // On a slow machine the search for the best number of threads ends some of them before they meet.
  int most = 0;
  for (int i = 0; i < 30 && most < 3; ++i) {
    Barrier made;
    barrier = &made;
    ASSERT_EQ(prepare(memory, 3), 0) << pinion_last_error();
    const Time patience = monotonic_now() + 2 * kSecond;
    while (made.arrived < 3 && monotonic_now() < patience) std::this_thread::yield();
    most = std::max<int>(most, made.arrived);
    made.open();
    EXPECT_EQ(ended(), 0) << pinion_last_error();
    end();
  }
  EXPECT_EQ(most, 3);
}

TEST_F(Preparing, MoreThanTheLimitIsRefusedAtOnce) {
  start("retention=on-demand,limit=1M");
  const Heap memory((std::size_t{2} << 20) / kPage);
  EXPECT_EQ(prepare(memory), ENOMEM);
  EXPECT_NE(std::string(pinion_last_error()).find("2M to prepare, but the limit is 1M"), std::string::npos)
      << pinion_last_error();
  EXPECT_EQ(preparation_, nullptr);
  EXPECT_EQ(operations_.calls().size(), 0u);
}

TEST_F(Preparing, ItGoesOnBesideATransferThatWaitsForLong) {
  const Heap memory(16), transferred(1);
  static void* needed;
  needed = transferred.page(0);
  Barrier barrier;
  static Barrier* in_the_way;
  static decltype(operations_.asked.register_memory) registers;
  in_the_way = &barrier;
  registers = operations_.asked.register_memory;
  operations_.asked.register_memory = [](void* context, void* address, std::size_t bytes, unsigned access,
                                         pinion_registration* made) {
    if (address == needed) in_the_way->pass();
    return registers(context, address, bytes, access, made);
  };
  start();
  std::thread transfer([&] {
    pinion_lease lease = PINION_LEASE_INIT;
    ASSERT_EQ(pinion_acquire(domain_, transferred.page(0), kPage, PINION_ACCESS_WRITE, &lease), 0)
        << pinion_last_error();
    EXPECT_EQ(pinion_release(&lease), 0);
  });
  ASSERT_TRUE(eventually([&] { return barrier.arrived > 0; }));
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  EXPECT_EQ(ended(), 0) << pinion_last_error();
  barrier.open();
  transfer.join();
}

TEST_F(Preparing, RefusedRangesAreNeitherSummedInVainNorAdvised) {
  start("retention=on-demand,limit=1M");
  const Memory memory((std::size_t{4} << 20) / kPage);
  const pinion_range one{memory.page(0), memory.bytes()};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.hugepages = 1;
  EXPECT_EQ(pinion_prepare(domain_, &one, 1, &options, &preparation_), ENOMEM);
  EXPECT_EQ(flags_of(memory).find(" hg"), std::string::npos);
  // 128 of them are 2^64 bytes together, and so 0.
  const std::vector<pinion_range> absurd(128,
                                         {reinterpret_cast<void*>(kPage), (std::size_t{1} << 57) - kPage});
  std::vector<pinion_range> whole = absurd;
  for (std::size_t i = 0; i < 128; ++i) whole.push_back({reinterpret_cast<void*>(kPage), kPage});
  EXPECT_EQ(pinion_prepare(domain_, whole.data(), whole.size(), &options, &preparation_), ENOMEM);
  EXPECT_NE(std::string(pinion_last_error()).find("more to prepare than there are addresses"),
            std::string::npos)
      << pinion_last_error();
}

TEST_F(Preparing, AnEndedPreparationIsNamed) {
  start();
  const Heap memory(4);
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  pinion_preparation* const ended_one = preparation_;
  end();
  const auto expect_named = [](int code) {
    EXPECT_EQ(code, EINVAL);
    EXPECT_NE(std::string(pinion_last_error()).find("the preparation has been ended"), std::string::npos)
        << pinion_last_error();
  };
  pinion_preparation_state state{};
  state.size = sizeof state;
  expect_named(pinion_preparation_end(ended_one));
  expect_named(pinion_preparation_cancel(ended_one));
  expect_named(pinion_preparation_wait(ended_one, 0));
  expect_named(pinion_preparation_poll(ended_one, &state));
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  EXPECT_EQ(ended(), 0) << pinion_last_error();
}

TEST_F(Preparing, HugepagesAreAdvised) {
  const Memory trial(1);
  if (::madvise(trial.page(0), kPage, MADV_HUGEPAGE) != 0) GTEST_SKIP() << "the kernel has none";
  start();
  const Memory memory((std::size_t{4} << 20) / kPage);
  const pinion_range range{memory.page(0), memory.bytes()};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.hugepages = 1;
  ASSERT_EQ(pinion_prepare(domain_, &range, 1, &options, &preparation_), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  const std::string flags = flags_of(memory);
  if (flags.empty()) GTEST_SKIP() << "the kernel lists the mapping otherwise";
  EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
}

// The kernel moves no mapping that advice has split, so that realloc() copies.
TEST_F(Preparing, AReallocOfABlockThatIsAdvisedInParts) {
  start();
  const std::size_t bytes = std::size_t{16} << 20;
  auto* block = static_cast<char*>(std::malloc(bytes));
  ASSERT_NE(block, nullptr);
  std::memset(block, 'b', bytes);
  const pinion_range inside{block + bytes / 4, bytes / 2};
  pinion_prepare_options options{};
  options.size = sizeof options;
  options.access = PINION_ACCESS_WRITE;
  options.hugepages = 1;
  ASSERT_EQ(pinion_prepare(domain_, &inside, 1, &options, &preparation_), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  end();
  for (const std::size_t wanted : {2 * bytes, bytes / 2}) {
    auto* const moved = static_cast<char*>(std::realloc(block, wanted));
    ASSERT_NE(moved, nullptr);
    block = moved;
    EXPECT_EQ(std::count(block, block + std::min(bytes, wanted), 'b'),
              static_cast<std::ptrdiff_t>(std::min(bytes, wanted)));
  }
  std::free(block);
}

TEST_F(Preparing, TheEndOfTheRunEndsIt) {
  start();
  const Heap memory(16);
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  EXPECT_EQ(pinion_stop(), 0);
  const int error = ended();
  EXPECT_TRUE(error == 0 || error == ECANCELED) << error;
  EXPECT_EQ(operations_.live(), error == 0 ? 8u : 0u) << "a lease outlives the run";
  end();
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(Preparing, AForkedChildCanOnlyEndIt) {
  start();
  const Heap memory(4);
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0) << pinion_last_error();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int wrong = pinion_preparation_wait(preparation_, 0) == ESHUTDOWN ? 0 : 1;
    if (pinion_preparation_cancel(preparation_) != ESHUTDOWN) wrong |= 2;
    if (pinion_preparation_end(preparation_) != 0) wrong |= 4;
    if (pinion_domain_close(domain_) != 0) wrong |= 8;
    if (operations_.live() != 2) wrong |= 16;
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(operations_.live(), 2u);
}

TEST_F(Preparing, BadRequestsAreNamed) {
  start();
  const Heap memory(1);
  const pinion_range good{memory.page(0), kPage}, empty{memory.page(0), 0};
  pinion_prepare_options options{};
  options.size = sizeof options;
  EXPECT_EQ(pinion_prepare(nullptr, &good, 1, nullptr, &preparation_), EINVAL);
  EXPECT_EQ(pinion_prepare(domain_, &good, 1, nullptr, nullptr), EINVAL);
  EXPECT_EQ(pinion_prepare(domain_, nullptr, 1, nullptr, &preparation_), EINVAL);
  EXPECT_EQ(pinion_prepare(domain_, &good, 0, nullptr, &preparation_), EINVAL);
  EXPECT_EQ(pinion_prepare(domain_, &empty, 1, nullptr, &preparation_), EINVAL);
  options.access = 64;
  EXPECT_EQ(pinion_prepare(domain_, &good, 1, &options, &preparation_), EINVAL);
  options = {};
  EXPECT_EQ(pinion_prepare(domain_, &good, 1, &options, &preparation_), EINVAL);
  EXPECT_EQ(pinion_preparation_wait(nullptr, 0), EINVAL);
  EXPECT_EQ(pinion_preparation_cancel(nullptr), EINVAL);
  EXPECT_EQ(pinion_preparation_end(nullptr), EINVAL);
  EXPECT_EQ(preparation_, nullptr);
}

// The last tests, since a process that was asked stays stopped.
TEST_F(Preparing, WhatIsUnderWayIsRolledBackInAProcessThatIsStopped) {
  start();
  const Heap memory(16);
  Barrier barrier;
  prepare_up_to(barrier, memory);
  EXPECT_FALSE(pinion::node::ask_to_stop(::getpid()));
  EXPECT_TRUE(eventually([] { return pinion::node::stop_answer(::getpid()).has_value(); }));
  barrier.open();
  EXPECT_EQ(ended(), ECANCELED);
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(Preparing, TheProgramsOperationsAreCalledWithoutALockInAProcessThatIsStopped) {
  Barrier barrier;
  std::atomic<int> deregistered{0};
  operations_.refuse_deregistration = [&] {
    if (++deregistered == 2) barrier.pass();  // the second preparation's
    return 0;
  };
  start("retention=leave-pinned");
  const Heap memory(2), other(2);
  ASSERT_EQ(prepare(other), 0) << pinion_last_error();
  pinion_preparation* const ended_before = preparation_;
  ASSERT_EQ(ended(), 0);
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0);
  EXPECT_FALSE(pinion::node::ask_to_stop(::getpid()));
  EXPECT_TRUE(eventually([&] { return barrier.arrived > 0; }));
  EXPECT_EQ(pinion_preparation_end(ended_before), 0) << "while an operation waits";
  barrier.open();
  end();
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(Preparing, FaultsThatTheProgramServesItselfAreLeftToIt) {
  if (pinion::kSanitized) GTEST_SKIP() << "no threads after a fork";
  if (!HeldFaults::allowed()) GTEST_SKIP() << "faults of the kernel cannot be served";
  for (const HeldFaults::By by : {HeldFaults::By::libc, HeldFaults::By::own_code})
    in_child([this, by] {
      start();
      const Heap memory(4);
      const HeldFaults faults(pinion::Range::of(memory.page(0), memory.bytes()), by);
      ASSERT_TRUE(faults.held());
      ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
      EXPECT_EQ(ended(), EBUSY);
      EXPECT_FALSE(faults.any()) << "Pinion's, not the program's";
      end();
      EXPECT_EQ(operations_.live(), 0u);
      EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
      EXPECT_EQ(pinion_stop(), 0) << pinion_last_error();
    });
}

TEST_F(Preparing, AProcessThatIsStoppedKeepsNothingPrepared) {
  start("retention=leave-pinned");
  const Heap memory(16), other(2);
  ASSERT_EQ(prepare(memory), 0) << pinion_last_error();
  ASSERT_EQ(ended(), 0);
  ASSERT_EQ(operations_.live(), 8u);
  EXPECT_FALSE(pinion::node::ask_to_stop(::getpid()));
  EXPECT_TRUE(eventually([&] { return operations_.live() == 0; }));
  EXPECT_EQ(ended(), ECANCELED);
  EXPECT_EQ(state().prepared_bytes, 0u);
  end();
  EXPECT_EQ(prepare(other), ECANCELED);
  EXPECT_NE(std::string(pinion_last_error()).find("`pinion stop` has stopped Pinion here"), std::string::npos)
      << pinion_last_error();
  EXPECT_EQ(preparation_, nullptr);
  pinion_lease lease = PINION_LEASE_INIT;
  EXPECT_EQ(pinion_acquire(domain_, memory.page(0), kPage, PINION_ACCESS_READ, &lease), 0)
      << "transfers register on demand";
  EXPECT_EQ(operations_.live(), 1u);
  EXPECT_EQ(pinion_release(&lease), 0);
}

}  // namespace
