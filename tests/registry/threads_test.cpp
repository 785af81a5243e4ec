// The registration cache with real threads: single flight, and random work against the invariants.
// Meant to run under ThreadSanitizer and AddressSanitizer as well. PINION_TEST_SCALE multiplies the steps.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "support/deterministic_scheduler.h"
#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;
using test::RegistryTest;
using Step = AcquireStep;

class RegistryThreads : public RegistryTest {
 protected:
  Step run(Acquisition& ticket, bool& waited) {
    const Step step = run_blocking(ticket, Actor::application);
    waited = ticket.result().waited;
    return step;
  }
};

TEST_F(RegistryThreads, OneRegistrationServesAllThatWait) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 20; ++round) {
    const Range range = pages(10 * static_cast<std::size_t>(round), 10 * static_cast<std::size_t>(round) + 5);
    std::atomic<int> waiting{0};
    std::atomic<int> calls{0};
    std::latch begun(kThreads);
    // The device call lasts until every thread has had the chance to see the region being registered.
    device.refuse = [&](Range, Access) {
      ++calls;
      begun.wait();
      return 0;
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        auto miss = ticket(range);
        const Step first = miss.next(clock.now());
        begun.count_down();
        Step step = first;
        if (first == Step::register_) {
          step = miss.registered(device.register_range(miss.range(), miss.rights(), Actor::application),
                                 clock.now());
        } else {
          EXPECT_EQ(first, Step::await_region);
          ++waiting;
          miss.awaited().change->wait(miss.awaited().seen, kNever);
          step = miss.next(clock.now());
        }
        EXPECT_EQ(step, Step::leased);
        EXPECT_TRUE(device.serves(miss.result().region->key, range, Access::all));
        domain->release(miss.result().region);
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(calls.load(), 1);
    EXPECT_EQ(waiting.load(), kThreads - 1);
  }
}

// The registration is done, but others have the waiting thread's core.
TEST_F(RegistryThreads, ALateWakeUpOfAWaitIsListedAsPreempted) {
  auto ahead = ticket(pages(0, 5));
  ASSERT_EQ(ahead.next(clock.now()), Step::register_);
  std::latch waits(1);
  constexpr Duration kLate = 3 * kMillisecond;
  auto miss = ticket(pages(0, 5));
  Duration took = 0;
  std::thread waiter([&] {
    const Time began = monotonic_now();
    const Step step = run_blocking(miss, Actor::application, not_noted, watched_anyway, [&](auto&& wait) {
      waits.count_down();
      wait();
      std::this_thread::sleep_for(std::chrono::nanoseconds(kLate));
    });
    took = monotonic_now() - began;
    EXPECT_EQ(step, Step::leased);
  });
  waits.wait();
  EXPECT_EQ(
      ahead.registered(device.register_range(ahead.range(), ahead.rights(), Actor::application), clock.now()),
      Step::leased);
  waiter.join();
  EXPECT_GE(miss.result().preempted, kLate / 2);
  EXPECT_LE(miss.result().preempted, took);
  domain->release(miss.result().region);
  domain->release(ahead.result().region);
}

// The helper loses its processor in the middle of a registration ahead.
TEST_F(RegistryThreads, ARegistrationAheadThatIsOverdueIsNotWaitedFor) {
  clock.set(monotonic_now() + 3600 * kSecond);  // not the kernel's
  for (int round = 0; round < 20; ++round) {
    const Range range = pages(10 * static_cast<std::size_t>(round), 10 * static_cast<std::size_t>(round) + 5);
    std::atomic<bool> first{true};
    std::latch held(1), overtaken(1);
    device.refuse = [&](Range, Access) {
      if (!first.exchange(false)) return 0;
      held.count_down();
      overtaken.wait();
      return 0;
    };
    std::thread helper([&] {
      auto ahead = ticket(range);
      ahead.request().lease = false;
      ahead.request().expected = kMillisecond;
      bool waited = false;
      EXPECT_NE(run(ahead, waited), Step::refused);
    });
    held.wait();
    clock.advance(kSecond);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        auto miss = ticket(range);
        bool waited = false;
        EXPECT_EQ(run(miss, waited), Step::leased);
        EXPECT_TRUE(device.serves(miss.result().region->key, range, Access::all));
        domain->release(miss.result().region);
      });
    }
    for (auto& thread : threads) thread.join();
    overtaken.count_down();
    helper.join();
    EXPECT_EQ(device.calls(), 2u * static_cast<std::size_t>(round + 1));
    EXPECT_EQ(device.live(), static_cast<std::size_t>(round + 1));
  }
}

// The kernel gives an address anew before the thread that unmapped it has closed its bracket: worth waiting
// for, also where that thread has to wait some time slices for a processor.
TEST_F(RegistryThreads, AnEventThatIsAlmostOverIsWaitedFor) {
  bool has_waited = false;
  // The waiting is bounded, and a loaded machine may be slower than that.
  for (int attempt = 0; attempt < 100 && !has_waited; ++attempt) {
    std::latch open(1);
    std::thread event([&] {
      brackets.open(pages(0, 4));
      open.count_down();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      brackets.close(pages(0, 4));
    });
    open.wait();
    auto miss = ticket(pages(0, 4));
    bool waited = false;
    const Step step = run(miss, waited);
    if (step == Step::leased) {
      domain->release(miss.result().region);
      has_waited = waited;
    } else {
      EXPECT_EQ(miss.result().error.code, EAGAIN);
    }
    event.join();
    change(pages(0, 4));
  }
  EXPECT_TRUE(has_waited);
}

/// Another thread's memory event, as long as this lives.
class EventOfAnother {
 public:
  EventOfAnother(Brackets& brackets, Range range)
      : thread_([&brackets, range, this] {
          brackets.open(range);
          open_.count_down();
          close_.wait();
          brackets.close(range);
        }) {
    open_.wait();
  }
  ~EventOfAnother() {
    close_.count_down();
    thread_.join();
  }

 private:
  std::latch open_{1}, close_{1};
  std::thread thread_;  // last: it uses the others
};

// It may be waiting for the thread that waits for it: that costs one acquire the wait, and later ones
// nothing.
TEST_F(RegistryThreads, AnEventThatLastsIsWaitedForOnce) {
  EventOfAnother event(brackets, pages(0, 4));
  bool waited = false;
  for (const bool expected : {true, false, false}) {
    auto crossed = ticket(pages(0, 4));
    waited = false;
    EXPECT_EQ(run(crossed, waited), Step::refused);
    EXPECT_EQ(waited, expected);
  }
  auto elsewhere = ticket(pages(8, 9));
  EXPECT_EQ(run(elsewhere, waited), Step::leased);
  domain->release(elsewhere.result().region);
  auto again = ticket(pages(0, 4));
  EXPECT_EQ(run(again, waited), Step::refused);
  EXPECT_TRUE(waited) << "it may be another event";
}

// Its end would never come.
TEST_F(RegistryThreads, AnEventOfTheCallersOwnIsNotWaitedFor) {
  brackets.open(pages(0, 4));
  auto inside = ticket(pages(2, 6));
  bool waited = false;
  EXPECT_EQ(run(inside, waited), Step::refused);
  EXPECT_EQ(inside.result().error.code, EAGAIN);
  EXPECT_FALSE(waited);

  // Also where another's crosses it too.
  EventOfAnother event(brackets, pages(4, 8));
  auto both = ticket(pages(2, 6));
  EXPECT_EQ(run(both, waited), Step::refused);
  EXPECT_FALSE(waited);
  brackets.close(pages(0, 4));
}

// Ranges of a small memory, of which pages go and come back. A lease on a page that changed meanwhile may be
// stale, as it may be in a real program; everything else must hold.
TEST_F(RegistryThreads, RandomWorkKeepsEveryPromise) {
  constexpr std::size_t kPages = 96;
  constexpr std::size_t kLimit = 48;
  constexpr int kThreads = 4;
  device.limits.max_region_bytes = pages_bytes(32);
  limit(pages_bytes(kLimit), 24);
  budget->peak_goal().pursue(true);
  // Part of the memory is read-only, some unions are refused, and now and then something fails.
  std::atomic<unsigned> calls{0};
  device.refuse = [&](Range range, Access access) {
    if (range.overlaps(pages(70, 80)) && includes(access, Access::write)) return EFAULT;
    if (range == pages(84, 92)) return 0;
    if (range.begin < pages(40, 41).begin && range.end > pages(40, 41).end) return EFAULT;
    if (calls.fetch_add(1) % 61 == 60) return ENOMEM;
    return 0;
  };
  const int steps = static_cast<int>(100'000 * test::test_scale());
  // Threads wait here for others that lack a processor: on a busy machine that is nearly all they do.
  const Time end = monotonic_now() + static_cast<Duration>(20 * kSecond * std::max(1.0, test::test_scale()));

  // Pages 84 to 92 are an arena's, which hands them out: no event but its own meets them.
  const int arena = 0;
  const Range arena_pages = pages(84, 92);
  auto permanent = ticket(arena_pages);
  permanent.request().lease = false;
  permanent.request().owner = &arena;
  bool waited_for_it = false;
  ASSERT_EQ(run(permanent, waited_for_it), Step::leased);
  const RegionRef permanent_ref{permanent.result().region, permanent.result().region->generation()};

  std::atomic<std::uint64_t> hit_count{0}, miss_count{0}, refused_count{0}, hold_count{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    RecentRegions mine;
    struct Lease {
      Region* region;
      RegistrationKey key;
      Range range;
      Access access;
    };
    std::vector<Lease> leases;
    std::vector<Lease> holds;
    const auto below = [&](std::size_t n) { return random() % n; };
    const auto some_range = [&] {
      const std::size_t begin = below(kPages);
      Range range = pages(begin, std::min(kPages, begin + 1 + below(8)));
      if (below(4) == 0) range.begin += 64;
      if (below(4) == 0) range.end -= 64;
      return range;
    };
    const auto check = [&](const Lease& lease) {
      EXPECT_TRUE(device.serves(lease.key, lease.range, lease.access));
    };
    const auto let_go = [&](std::size_t i) {
      check(leases[i]);
      leases[i].region->last_use.store(ticks_now(), std::memory_order_relaxed);
      domain->release(leases[i].region);
      leases[i] = leases.back();
      leases.pop_back();
    };
    const auto end_hold = [&](std::size_t i) {
      check(holds[i]);
      domain->end_hold(holds[i].region);
      holds[i] = holds.back();
      holds.pop_back();
    };
    for (int step = 0; step < steps && monotonic_now() < end && !HasFailure(); ++step) {
      const std::size_t dice = below(100);
      if (!leases.empty() && below(8) == 0) {
        const Lease& lease = leases[below(leases.size())];
        if (domain->begin_hold({lease.region, lease.region->generation()})) {
          holds.push_back(lease);
          hold_count.fetch_add(1, std::memory_order_relaxed);
        }
      }
      if (dice < 55) {
        const Range range = some_range();
        const Access access = below(3) == 0 ? Access::write : Access::read;
        Region* region = domain->try_hit(range, access, mine);
        if (region) {
          hit_count.fetch_add(1, std::memory_order_relaxed);
        } else {
          auto miss = ticket(range, access);
          bool waited = false;
          if (run(miss, waited) != Step::leased) {
            refused_count.fetch_add(1, std::memory_order_relaxed);
            EXPECT_NE(miss.result().error.code, 0);
            continue;
          }
          miss_count.fetch_add(1, std::memory_order_relaxed);
          region = miss.result().region;
        }
        leases.push_back({region, region->key, range, access});
        check(leases.back());
      } else if (dice < 85) {
        if (!leases.empty()) let_go(below(leases.size()));
      } else if (dice < 91) {
        const Range range = some_range().to_pages();
        brackets.open(range);
        domain->doom(range, &arena);
        if (below(4) == 0) std::this_thread::yield();
        brackets.close(range);
      } else if (dice < 95) {
        const auto refs = domain->idle_regions(some_range());
        for (const RegionRef& ref : refs)
          if (Region* claimed = domain->begin_retire(ref)) retire_claimed(*domain, claimed, Actor::helper);
      } else if (dice < 98) {
        auto ahead = ticket(some_range());
        ahead.request().lease = false;
        bool waited = false;
        static_cast<void>(run(ahead, waited));  // at times refused, or busy
      } else {
        budget->peak_goal().grant(static_cast<double>(below(2000)));
        reap();
      }
      while (leases.size() > 6) let_go(below(leases.size()));
      while (holds.size() > 2) end_hold(below(holds.size()));
    }
    while (!leases.empty()) let_go(0);
    while (!holds.empty()) end_hold(0);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i + 1);
  for (auto& thread : threads) thread.join();

  EXPECT_LE(device.peak(), pages_bytes(kLimit));
  EXPECT_EQ(device.bytes(), domain->registered_bytes());
  EXPECT_EQ(device.live(), domain->region_count());
  EXPECT_EQ(budget->bytes(), domain->registered_bytes());
  EXPECT_GT(hit_count.load(), 0u);
  EXPECT_GT(miss_count.load(), 0u);
  EXPECT_GT(refused_count.load(), 0u);
  EXPECT_GT(hold_count.load(), 0u);
  EXPECT_TRUE(permanent_ref.current());
  EXPECT_TRUE(device.serves(permanent_ref.region->key, arena_pages, Access::all));
  domain->doom(arena_pages);
  // Every region left is idle or waits to be reaped: TearDown() retires all of them.
}

// Threads that hit while others change the very memory: after a change nobody is served the old registration.
TEST_F(RegistryThreads, NoHitOnChangedMemory) {
  constexpr std::size_t kBuffers = 8;
  // The version of each buffer's memory, as the device sees it when it registers.
  std::atomic<std::uint64_t> version[kBuffers] = {};
  std::mutex mutex;
  std::map<Address, std::uint64_t> registered_version;  // of the last registration of each buffer
  const auto buffer = [](std::size_t i) { return pages(10 * i, 10 * i + 4); };
  device.refuse = [&](Range range, Access) {
    const std::size_t i = (range.begin - pages(0, 1).begin) / pages_bytes(10);
    std::lock_guard lock(mutex);
    registered_version[range.begin] = version[i].load();
    return 0;
  };
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> served{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      RecentRegions mine;
      while (!done.load()) {
        const std::size_t i = random() % kBuffers;
        // A lease granted after this version was reached is on a registration at least as new.
        const std::uint64_t before = version[i].load();
        Region* region = domain->try_hit(buffer(i), Access::read, mine);
        if (!region) {
          auto miss = ticket(buffer(i));
          bool waited = false;
          if (run(miss, waited) != Step::leased) continue;
          region = miss.result().region;
        }
        {
          std::lock_guard lock(mutex);
          ASSERT_GE(registered_version[buffer(i).begin], before);
        }
        domain->release(region);
        served.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  std::mt19937 random(99);
  const auto enough = static_cast<std::uint64_t>(1'000'000 * test::test_scale());
  for (int event = 0; served.load() < enough && !HasFailure(); ++event) {
    const std::size_t i = random() % kBuffers;
    brackets.open(buffer(i));
    domain->doom(buffer(i));
    version[i].fetch_add(1);
    brackets.close(buffer(i));
    if (event % 16 == 0) reap();
    std::this_thread::yield();
  }
  done.store(true);
  for (auto& thread : threads) thread.join();
}

// The hints by which victims are chosen change during the choice.
TEST_F(RegistryThreads, VictimsAreChosenWhileTheirHintsChange) {
  constexpr std::size_t kRegions = 500;
  limit(pages_bytes(kRegions));
  std::vector<Region*> regions;
  for (std::size_t i = 0; i < kRegions; ++i) regions.push_back(idle(pages(2 * i, 2 * i + 1)));
  std::atomic<bool> done{false};
  std::thread hints([&] {
    std::mt19937_64 random(1);
    while (!done.load(std::memory_order_relaxed))
      regions[random() % kRegions]->last_use.store(random(), std::memory_order_relaxed);
  });
  const std::size_t misses = static_cast<std::size_t>(300 * test::test_scale());
  for (std::size_t i = 0; i < misses; ++i) {
    Region* region = acquire(pages(2 * (kRegions + i), 2 * (kRegions + i) + 1));
    ASSERT_NE(region, nullptr);
    domain->release(region);
  }
  done.store(true);
  hints.join();
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(kRegions));
  EXPECT_LE(device.peak(), pages_bytes(kRegions));
}

}  // namespace
}  // namespace pinion
