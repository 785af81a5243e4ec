// Domains whose device registers ranges of bytes: regions share pages, overlap never, and serve whole
// transfers only. The fake device fails the test where two registrations overlap.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::RegistryTest;
using Step = AcquireStep;

/// Bytes of an imaginary memory.
Range bytes(std::size_t begin, std::size_t end) {
  const Address base = pages(0, 0).begin;
  return {base + begin, base + end};
}

class ByteRanges : public RegistryTest {
 protected:
  ByteRanges() {
    device.byte_ranges = true;
    limit(UINT64_MAX);
  }
  /// The error of a miss that is refused.
  int refusal(Range range) {
    auto miss = ticket(range);
    EXPECT_EQ(run(miss), Step::refused);
    return miss.result().error.code;
  }
  std::vector<Range> regions() {
    std::vector<Range> all;
    for (const RegionRef& ref : domain->idle_regions()) all.push_back(ref.region->range());
    return all;
  }
};

TEST_F(ByteRanges, ARegionHasTheBytesOfItsRequest) {
  EXPECT_EQ(idle(bytes(100, 8100))->range(), bytes(100, 8100));
  EXPECT_TRUE(hits(bytes(100, 8100)));
  EXPECT_TRUE(hits(bytes(5000, 5001)));
  EXPECT_FALSE(hits(bytes(99, 101)));
  EXPECT_FALSE(hits(bytes(8099, 8101)));
  EXPECT_EQ(domain->registered_bytes(), 8000u);
}

TEST_F(ByteRanges, NeighboursStayApartEvenInOnePage) {
  idle(bytes(100, 200));
  idle(bytes(200, 300));
  idle(bytes(350, 400));
  EXPECT_EQ(regions(), (std::vector{bytes(100, 200), bytes(200, 300), bytes(350, 400)}));
  EXPECT_EQ(device.live(), 3u);
}

TEST_F(ByteRanges, ARequestThatOverlapsByAByteIsMerged) {
  idle(bytes(100, 200));
  idle(bytes(300, 400));
  EXPECT_EQ(idle(bytes(199, 301))->range(), bytes(100, 400));
  EXPECT_EQ(device.live(), 1u);
  EXPECT_EQ(domain->registered_bytes(), 300u);
}

TEST_F(ByteRanges, ALargerRequestReplacesTheRegionsWithin) {
  idle(bytes(100, 200));
  idle(bytes(300, 400));
  EXPECT_EQ(idle(bytes(50, 500))->range(), bytes(50, 500));
  EXPECT_EQ(device.live(), 1u);
}

TEST_F(ByteRanges, ARegionInUseIsInTheWay) {
  Region* used = acquire(bytes(100, 200));
  idle(bytes(300, 400));
  EXPECT_EQ(refusal(bytes(50, 101)), EBUSY);
  EXPECT_EQ(refusal(bytes(50, 350)), EBUSY) << "and the idle one stays";
  EXPECT_EQ(device.live(), 2u);
  EXPECT_TRUE(hits(bytes(150, 200))) << "the region in use serves on";
  EXPECT_NE(idle(bytes(0, 100)), nullptr);
  domain->release(used);
  EXPECT_EQ(idle(bytes(50, 350))->range(), bytes(0, 400));
}

TEST_F(ByteRanges, OnlyTheRequestsOwnBytesNeedToBeFree) {
  idle(bytes(100, 200));
  auto miss = ticket(bytes(150, 300));
  ASSERT_EQ(miss.next(clock.now()), Step::deregister);
  for (Region* victim : miss.victims()) retire_claimed(*domain, victim, Actor::application);
  Region* used = acquire(bytes(100, 140));  // by another thread, meanwhile
  ASSERT_EQ(run(miss), Step::leased);
  EXPECT_EQ(miss.result().region->range(), bytes(150, 300));
  domain->release(miss.result().region);
  domain->release(used);
}

TEST_F(ByteRanges, ARegionThatIsBeingRegisteredIsInTheWay) {
  auto first = ticket(bytes(100, 200));
  ASSERT_EQ(first.next(clock.now()), Step::register_);
  EXPECT_EQ(refusal(bytes(150, 250)), EBUSY);
  auto second = ticket(bytes(120, 130));
  EXPECT_EQ(second.next(clock.now()), Step::await_region) << "it will serve";
  ASSERT_EQ(first.registered(device.register_range(first.range(), first.rights(), Actor::application), 0),
            Step::leased);
  domain->release(first.result().region);
}

TEST_F(ByteRanges, ARegionOnItsWayOutIsInTheWay) {
  idle(bytes(100, 200));
  Region* leaving = domain->begin_retire(domain->idle_regions()[0]);
  ASSERT_NE(leaving, nullptr);
  EXPECT_EQ(refusal(bytes(150, 250)), EBUSY);
  EXPECT_EQ(refusal(bytes(100, 200)), EBUSY);
  EXPECT_NE(idle(bytes(200, 250)), nullptr);
  retire_claimed(*domain, leaving, Actor::helper);
  EXPECT_EQ(idle(bytes(150, 210))->range(), bytes(150, 250));
}

TEST_F(ByteRanges, ARegionWithoutMemoryIsInTheWayUntilItsLeaseEnds) {
  Region* used = acquire(bytes(100, 200));
  change(pages(0, 1));
  EXPECT_EQ(refusal(bytes(100, 200)), EBUSY);
  domain->release(used);
  EXPECT_EQ(idle(bytes(150, 210))->range(), bytes(150, 210)) << "and is merged with nothing";
}

TEST_F(ByteRanges, ARegistrationAheadThatIsLateIsAwaited) {
  AcquireRequest request{.pages = bytes(100, 200), .lease = false, .expected = kMillisecond};
  Acquisition ahead(*domain, request);
  ASSERT_EQ(ahead.next(clock.now()), Step::register_);
  auto miss = ticket(bytes(100, 200));
  ASSERT_EQ(miss.next(clock.now()), Step::await_region);
  clock.advance(kSecond);
  EXPECT_EQ(miss.next(clock.now()), Step::await_region) << "two registrations would overlap";
  ASSERT_EQ(ahead.registered(device.register_range(ahead.range(), ahead.rights(), Actor::helper), 0),
            Step::leased);
  EXPECT_EQ(run(miss), Step::leased);
  domain->release(miss.result().region);
}

TEST_F(ByteRanges, BytesThatAnotherCallIsUsingAreTriedAgain) {
  idle(bytes(100, 200));
  int refusals = 2;
  device.refuse = [&](Range, Access) { return refusals-- > 0 ? EBUSY : 0; };
  EXPECT_EQ(refusal(bytes(150, 250)), EBUSY) << "merged, and alone";
  idle(bytes(100, 200));
  EXPECT_EQ(idle(bytes(150, 250))->range(), bytes(100, 250)) << "the merge was not to blame";
}

TEST_F(ByteRanges, LargePagesAreNotRoundedTo) {
  AcquireRequest request{.pages = bytes(100, 200), .large = {pages(0, 512), 512 * page_size()}};
  Acquisition miss(*domain, request);
  ASSERT_EQ(run(miss), Step::leased);
  EXPECT_EQ(miss.result().region->range(), bytes(100, 200));
  domain->release(miss.result().region);
}

TEST_F(ByteRanges, LimitsCountBytes) {
  limit(3000);
  idle(bytes(0, 1000), 1);
  idle(bytes(1000, 2000), 2);
  idle(bytes(2000, 3000), 3);
  EXPECT_EQ(domain->registered_bytes(), 3000u);
  idle(bytes(5000, 5001), 4);
  EXPECT_EQ(domain->registered_bytes(), 2001u);
  EXPECT_EQ(refusal(bytes(0, 3001)), ENOMEM);
}

TEST_F(ByteRanges, AMergeThatExceedsALimitLeavesTheRequestAlone) {
  limit(3000);
  idle(bytes(0, 2000), 1);
  EXPECT_EQ(idle(bytes(1999, 4000))->range(), bytes(1999, 4000));
}

TEST_F(ByteRanges, TheIdleRegionsOfARangeAreFoundByTheirBytes) {
  idle(bytes(100, 200));
  idle(bytes(200, 300));
  Region* used = acquire(bytes(300, 400));
  const auto found = [&](Range in) { return domain->idle_regions(in).size(); };
  EXPECT_EQ(found(bytes(0, 100)), 0u);
  EXPECT_EQ(found(bytes(0, 101)), 1u);
  EXPECT_EQ(found(bytes(199, 201)), 2u);
  EXPECT_EQ(found(bytes(300, 400)), 0u) << "in use";
  domain->release(used);
  EXPECT_EQ(found(bytes(0, 1000)), 3u);
}

/// Whatever the order of steps, each lease lies in one registration, and no two overlap.
TEST_F(ByteRanges, RandomStepsOfOneThread) {
  struct Lease {
    Region* region;
    Range range;
  };
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    limit(6000, 12);
    std::vector<Lease> leases;
    const auto some = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
    std::size_t leased = 0;
    for (int step = 0; step < 2'000; ++step) {
      const std::size_t begin = some(8000);
      const Range range = bytes(begin, begin + 1 + some(600));
      switch (some(6)) {
        case 0:
        case 1:
        case 2: {
          Region* region = hit(range);
          if (region == nullptr) {
            auto miss = ticket(range);
            if (run(miss) == Step::leased)
              region = miss.result().region;
            else
              EXPECT_TRUE(miss.result().error.code == EBUSY || miss.result().error.code == ENOMEM);
          }
          if (region == nullptr) break;
          ++leased;
          EXPECT_TRUE(device.serves(region->key, range, Access::read));
          leases.push_back({region, range});
          break;
        }
        case 3:
          if (leases.empty()) break;
          std::swap(leases[some(leases.size())], leases.back());
          EXPECT_TRUE(device.serves(leases.back().region->key, leases.back().range, Access::read));
          domain->release(leases.back().region);
          leases.pop_back();
          break;
        case 4:
          for (const RegionRef& ref : domain->idle_regions(range))
            if (Region* region = domain->begin_retire(ref)) retire_claimed(*domain, region, Actor::helper);
          for (const RegionRef& ref : domain->idle_regions())
            EXPECT_FALSE(ref.region->range().overlaps(range));
          break;
        default:
          if (some(4) == 0) change(range.to_pages());
          if (some(4) == 0) reap();
      }
      EXPECT_EQ(device.bytes(), domain->registered_bytes());
      EXPECT_LE(device.bytes(), 6000u);
    }
    EXPECT_GT(leased, 100u);
    for (const Lease& lease : leases) domain->release(lease.region);
    retire_all(*domain, Actor::helper);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_F(ByteRanges, RandomStepsOfManyThreads) {
  limit(20'000, 40);
  std::atomic<std::size_t> leased{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    RecentRegions hints;
    for (int step = 0; step < 4'000; ++step) {
      const std::size_t begin = random() % 30'000;
      const Range range = bytes(begin, begin + 1 + random() % 3'000);
      if (random() % 8 == 0) {
        for (const RegionRef& ref : domain->idle_regions(range))
          if (Region* region = domain->begin_retire(ref)) retire_claimed(*domain, region, Actor::helper);
        continue;
      }
      if (random() % 32 == 0) {
        domain->doom(range);
        continue;
      }
      Region* region = domain->try_hit(range, Access::read, hints);
      if (region == nullptr) {
        Acquisition miss(*domain, {.pages = range, .lease = random() % 4 != 0});
        const Step end = run_blocking(miss, Actor::application);
        if (end != Step::leased || !miss.request().lease) continue;
        region = miss.result().region;
      }
      EXPECT_TRUE(device.serves(region->key, range, Access::read));
      leased.fetch_add(1, std::memory_order_relaxed);
      domain->release(region);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(leased, 1000u);
}

}  // namespace
}  // namespace pinion
