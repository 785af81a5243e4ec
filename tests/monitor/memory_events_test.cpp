// Memory events and forks against registrations, through the whole library: pages really pinned, libc really
// hooked.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "pinion/pinion.h"
#include "support/deterministic_scheduler.h"
#include "support/eventually.h"
#include "support/kept_registrations.h"
#include "support/registry_fixture.h"
#include "support/resident_memory.h"
#include "support/sanitizers.h"

extern char** environ;

namespace pinion {
namespace {

using test::eventually;
using test::test_scale;
using Step = AcquireStep;

const std::size_t kPage = page_size();

char* map_pages(std::size_t pages, void* at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0);
  void* const p = ::mmap(at, pages * kPage, PROT_READ | PROT_WRITE, flags, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  std::memset(p, 1, pages * kPage);
  return static_cast<char*>(p);
}

class MemoryEvents : public testing::Test {
 protected:
  void start(const char* options) {
    ASSERT_EQ(pinion_start(options), 0) << pinion_last_error();
    ASSERT_EQ(pinion_domain_open(nullptr, nullptr, &domain_), 0) << pinion_last_error();
  }
  void TearDown() override {
    if (!domain_) return;
    EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    EXPECT_EQ(pinion_stop(), 0);
  }
  /// A transfer of the range; the errno value of its acquire.
  int use(const char* begin, std::size_t pages, unsigned access = PINION_ACCESS_READ | PINION_ACCESS_WRITE) {
    pinion_lease lease;
    const int error = pinion_acquire(domain_, begin, pages * kPage, access, &lease);
    if (error == 0) {
      EXPECT_EQ(pinion_release(&lease), 0);
    }
    return error;
  }
  struct pinion_statistics statistics() {
    struct pinion_statistics s {};
    s.size = sizeof s;
    EXPECT_EQ(pinion_statistics(domain_, &s), 0) << pinion_last_error();
    return s;
  }
  pinion_domain* domain_ = nullptr;
};

// ---- protection ----

TEST_F(MemoryEvents, RightsThatAreTakenEndTheRegistration) {
  start("retention=leave-pinned");
  char* const p = map_pages(4);
  ASSERT_EQ(use(p, 4), 0);
  ASSERT_EQ(::mprotect(p, 4 * kPage, PROT_READ), 0);
  EXPECT_EQ(use(p, 4, PINION_ACCESS_WRITE), EFAULT);
  EXPECT_EQ(use(p, 4, PINION_ACCESS_READ), 0);
  EXPECT_EQ(use(p, 4, PINION_ACCESS_WRITE), EFAULT);
  ASSERT_EQ(::mprotect(p, 4 * kPage, PROT_NONE), 0);
  EXPECT_EQ(use(p, 4, PINION_ACCESS_READ), EFAULT);
  // No refusal is remembered: rights that are given back count at once.
  ASSERT_EQ(::mprotect(p, 4 * kPage, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(use(p, 4, PINION_ACCESS_WRITE), 0);
  EXPECT_EQ(statistics().hits, 0u);
  if (pinion::test::kKept) {
    EXPECT_EQ(use(p, 4), 0);
    EXPECT_EQ(statistics().hits, 1u);
  }
  ::munmap(p, 4 * kPage);
}

TEST_F(MemoryEvents, RightsAddedToAPartAreNoEvent) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  char* const p = map_pages(8);
  ASSERT_EQ(::mprotect(p + 4 * kPage, 4 * kPage, PROT_READ), 0);
  ASSERT_EQ(use(p, 8, PINION_ACCESS_READ), 0);
  EXPECT_EQ(use(p, 8, PINION_ACCESS_WRITE), EFAULT);
  ASSERT_EQ(use(p, 8, PINION_ACCESS_READ), 0);
  const auto before = statistics();
  ASSERT_EQ(::mprotect(p + 4 * kPage, 4 * kPage, PROT_READ | PROT_WRITE), 0);
  ASSERT_EQ(use(p, 8, PINION_ACCESS_READ), 0);
  EXPECT_EQ(statistics().hits, before.hits + 1);
  EXPECT_EQ(use(p, 8, PINION_ACCESS_WRITE), 0);
  ::munmap(p, 8 * kPage);
}

// ---- much at once ----

TEST_F(MemoryEvents, ManyRegionsInOneEvent) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned,limit=1G");
  constexpr std::size_t kRegions = 10'000;
  char* const p = map_pages(2 * kRegions);
  char* const beside = map_pages(1);
  ASSERT_EQ(use(beside, 1), 0);
  for (std::size_t i = 0; i < kRegions; ++i) ASSERT_EQ(use(p + 2 * i * kPage, 1), 0) << pinion_last_error();
  EXPECT_EQ(statistics().regions, kRegions + 1);
  // At once: another thread's allocation might come to lie in a hole.
  ASSERT_EQ(
      ::mmap(p, 2 * kRegions * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      p);
  const auto before = statistics();
  for (std::size_t i = 0; i < kRegions; i += 100) ASSERT_EQ(use(p + 2 * i * kPage, 1), 0);
  ASSERT_EQ(use(beside, 1), 0);
  const auto after = statistics();
  EXPECT_EQ(after.hits, before.hits + 1) << "of the one beside";
  // One of the doomed may be in the helper's hands at this moment.
  EXPECT_TRUE(eventually([this] { return statistics().regions == kRegions / 100 + 1; }))
      << statistics().regions;
  ::munmap(p, 2 * kRegions * kPage);
  ::munmap(beside, kPage);
}

TEST_F(MemoryEvents, AStormOfUnmapsTakesNoMemory) {
  start("retention=helper,minimum-gain=0");
  // PINION_TEST_SCALE=100 makes it ten million.
  const auto unmaps = static_cast<std::size_t>((kSanitized ? 20'000 : 100'000) * test_scale());
  std::size_t at_start = 0;
  for (std::size_t i = 0; i < unmaps; ++i) {
    // Every 16th is a buffer that was used; addresses come again, and do not.
    const std::size_t pages = 1 + i % 64;
    void* const p =
        ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(p, MAP_FAILED);
    if (i % 16 == 0) {
      ASSERT_EQ(use(static_cast<char*>(p), pages), 0) << pinion_last_error();
    }
    ASSERT_EQ(::munmap(p, pages * kPage), 0);
    if (i == unmaps / 10) at_start = test::resident_bytes();
  }
  if (!kSanitized) {  // those keep freed memory
    EXPECT_LT(test::resident_bytes(), at_start + (std::size_t{8} << 20));
  }
}

// ---- forks ----

TEST_F(MemoryEvents, IdleRegionsGoBeforeAFork) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  constexpr std::size_t kPages = 1024;
  char* const idle = map_pages(kPages);
  char* const leased = map_pages(2);
  ASSERT_EQ(use(idle, kPages), 0);
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain_, leased, kPage, PINION_ACCESS_READ, &lease), 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(idle[0] == 1 && leased[0] == 1 ? 0 : 1);
  EXPECT_EQ(statistics().registered_bytes, kPage) << "what is leased stays";
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pinion_release(&lease), 0);

  // The parent goes on, and little is worth no trouble.
  ASSERT_EQ(use(idle, 4), 0);
  const auto before = statistics();
  const pid_t second = ::fork();
  if (second == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(second, &status, 0), second);
  EXPECT_EQ(statistics().registered_bytes, before.registered_bytes);
  ASSERT_EQ(use(idle, 4), 0);
  EXPECT_EQ(statistics().hits, before.hits + 1);
  ::munmap(idle, kPages * kPage);
  ::munmap(leased, 2 * kPage);
}

/// Registers, unmaps and allocates until it is stopped.
class Busy {
 public:
  explicit Busy(pinion_domain* domain) : domain_(domain) {
    for (int i = 0; i < 3; ++i) threads_.emplace_back([this, i] { work(static_cast<std::size_t>(i)); });
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  std::uint64_t rounds() const { return rounds_; }

 private:
  void work(std::size_t number) {
    constexpr std::size_t kPages = 300;
    for (std::size_t i = number; !stop_; ++i) {
      char* const p = map_pages(kPages);
      for (const std::size_t pages : {kPages, 1 + i % kPages}) {
        pinion_lease lease;
        const int error = pinion_acquire(domain_, p, pages * kPage, PINION_ACCESS_WRITE, &lease);
        // The address was another's a moment ago, whose munmap has yet to return to it.
        EXPECT_TRUE(error == 0 || error == EAGAIN) << pinion_last_error();
        if (error == 0) {
          EXPECT_EQ(pinion_release(&lease), 0);
        }
      }
      void* const block = std::malloc(std::size_t{34} << 20);
      std::free(block);
      ::munmap(p, kPages * kPage);
      ++rounds_;
    }
  }

  pinion_domain* const domain_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> rounds_{0};
  std::vector<std::thread> threads_;
};

/// The permitted acts of a child, which must not wait for a thread of the parent's.
int live_as_a_child(bool with_engine) {
  ::alarm(240);
  void* const block = std::malloc(std::size_t{40} << 20);
  if (!block) return 1;
  std::free(block);
  char* const p = map_pages(3);
  if (::munmap(p, kPage) != 0) return 2;
  if (!with_engine) return 0;
  pinion_domain* domain = nullptr;
  pinion_lease lease;
  if (pinion_start("retention=leave-pinned") != 0 || pinion_domain_open(nullptr, nullptr, &domain) != 0)
    return 3;
  if (pinion_acquire(domain, p + kPage, kPage, PINION_ACCESS_WRITE, &lease) != 0) return 4;
  if (pinion_release(&lease) != 0 || pinion_domain_close(domain) != 0 || pinion_stop() != 0) return 5;
  return 0;
}

TEST_F(MemoryEvents, ForkWhileOthersRegisterAndAllocate) {
  start("retention=leave-pinned");
  const auto forks = static_cast<int>((kSanitized ? 20 : 60) * test_scale());
  {
    const Busy busy(domain_);
    for (int i = 0; i < forks; ++i) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      // Sanitizers refuse threads after a fork.
      if (child == 0) ::_exit(live_as_a_child(!kSanitized && i % 4 == 0));
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " in child " << i;
      ASSERT_EQ(WEXITSTATUS(status), 0) << "in child " << i;
    }
    EXPECT_GT(busy.rounds(), 0u);
  }
  // The helper is alive (it closes the domain), and no bracket was left open.
  char* const p = map_pages(1);
  EXPECT_EQ(use(p, 1), 0) << pinion_last_error();
  ::munmap(p, kPage);
}

TEST_F(MemoryEvents, SpawnedChildrenDisturbNothing) {
  NEEDS_KEPT_REGISTRATIONS();
  start("retention=leave-pinned");
  char* const p = map_pages(512);
  ASSERT_EQ(use(p, 512), 0);
  char* arguments[] = {const_cast<char*>("true"), nullptr};
  for (int i = 0; i < 5; ++i) {
    pid_t child = 0;
    ASSERT_EQ(::posix_spawnp(&child, "true", nullptr, nullptr, arguments, environ), 0);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
    ASSERT_EQ(use(p, 512), 0);
  }
  EXPECT_EQ(statistics().hits, 5u) << "such a child is no reason to let anything go";

  // Unmapping by a child that shares the memory unmaps the parent's as well.
  const pid_t child = ::vfork();
  if (child == 0) {
    ::munmap(p, 512 * kPage);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(use(p, 512), EFAULT);
  ASSERT_EQ(map_pages(512, p), p);
  EXPECT_EQ(use(p, 512), 0) << pinion_last_error();
  EXPECT_EQ(statistics().hits, 5u);
  ::munmap(p, 512 * kPage);
}

// ---- a signal handler that unmaps, at every instruction of the slow path ----

// ThreadSanitizer's own code takes locks, so it cannot be interrupted like this.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

class InterruptedDomain : public test::RegistryTest {
 public:
  static constexpr std::size_t kRegions = 2'000;

  /// A memory event of the next region, as a munmap in a signal handler makes it.
  void interrupt() {
    const std::size_t i = interruptions++ % kRegions;
    change(test::pages(3 * i, 3 * i + 1));
    missed += !regions[i]->word.load().doomed();
  }
  /// The handler is called after each instruction until run_through().
  static void step() { asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc"); }
  static void run_through() { asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc"); }

  static inline InterruptedDomain* test_ = nullptr;
  std::vector<Region*> regions;
  std::size_t interruptions = 0;
  std::size_t missed = 0;
};

TEST_F(InterruptedDomain, BetweenAnyTwoInstructionsOfTheSlowPath) {
  // Leased, so that they stay for the whole test, doomed or not.
  for (std::size_t i = 0; i < kRegions; ++i) regions.push_back(acquire(test::pages(3 * i, 3 * i + 1)));
  test_ = this;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { test_->interrupt(); };
  ASSERT_EQ(sigaction(SIGTRAP, &action, &before), 0);
  // A handler that waited for the thread that it has interrupted would never return.
  for (const std::size_t at : {std::size_t{0}, kRegions / 2, kRegions - 1}) {
    auto miss = ticket(test::pages(3 * at + 1, 3 * at + 3));
    step();
    const Step begun = miss.next(clock.now());
    run_through();
    ASSERT_EQ(begun, Step::register_);
    const auto registration = device.register_range(miss.range(), miss.rights(), Actor::application);
    step();
    const Step committed = miss.registered(registration, clock.now());
    domain->release(miss.result().region);
    Region* const claimed = domain->begin_retire({miss.result().region, miss.result().region->generation()});
    run_through();
    ASSERT_EQ(committed, Step::leased);
    ASSERT_EQ(claimed, miss.result().region);
    retire_claimed(*domain, claimed, Actor::application);
  }
  ASSERT_EQ(sigaction(SIGTRAP, &before, nullptr), 0);
  EXPECT_GT(interruptions, 1000u);
  EXPECT_EQ(missed, 0u);
  for (Region* region : regions) domain->release(region);
}

#endif

}  // namespace
}  // namespace pinion
