// Which regions go when memory is short: traces through the real registry in virtual time, against LRU, SIEVE
// and Belady's rule, and against counting.
#include "registry/victims.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;
using Trace = std::vector<std::uint32_t>;
constexpr std::size_t kFits = 100;

// ---- other policies, in hits of a trace with room for kFits ----

std::size_t belady(const Trace& trace) {
  std::vector<std::size_t> next(trace.size());
  std::unordered_map<std::uint32_t, std::size_t> later;
  for (std::size_t i = trace.size(); i-- > 0; later[trace[i]] = i)
    next[i] = later.count(trace[i]) ? later[trace[i]] : SIZE_MAX;
  std::set<std::pair<std::size_t, std::uint32_t>> held;  // by next use
  std::unordered_map<std::uint32_t, std::size_t> use;
  std::size_t hits = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (const auto found = use.find(trace[i]); found != use.end()) {
      ++hits;
      held.erase({found->second, trace[i]});
    } else if (held.size() == kFits) {
      use.erase(std::prev(held.end())->second);
      held.erase(std::prev(held.end()));
    }
    use[trace[i]] = next[i];
    held.insert({next[i], trace[i]});
  }
  return hits;
}

std::size_t lru(const Trace& trace) {
  std::map<std::size_t, std::uint32_t> by_use;
  std::unordered_map<std::uint32_t, std::size_t> use;
  std::size_t hits = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (const auto found = use.find(trace[i]); found != use.end()) {
      ++hits;
      by_use.erase(found->second);
    } else if (use.size() == kFits) {
      use.erase(by_use.begin()->second);
      by_use.erase(by_use.begin());
    }
    use[trace[i]] = i;
    by_use[i] = trace[i];
  }
  return hits;
}

std::size_t sieve(const Trace& trace) {
  struct Entry {
    std::uint32_t what;
    bool visited;
  };
  std::list<Entry> held;  // the newest first
  std::unordered_map<std::uint32_t, std::list<Entry>::iterator> at;
  auto hand = held.end();  // the next one to look at; end: the oldest
  std::size_t hits = 0;
  for (const std::uint32_t what : trace) {
    if (const auto found = at.find(what); found != at.end()) {
      ++hits;
      found->second->visited = true;
      continue;
    }
    if (held.size() == kFits) {
      const auto newer = [&](auto entry) {
        return entry == held.begin() ? std::prev(held.end()) : std::prev(entry);
      };
      if (hand == held.end()) hand = std::prev(held.end());
      for (; hand->visited; hand = newer(hand)) hand->visited = false;
      const auto victim = hand;
      hand = victim == held.begin() ? held.end() : std::prev(victim);
      at.erase(victim->what);
      held.erase(victim);
    }
    held.push_front({what, false});
    at[what] = held.begin();
  }
  return hits;
}

// ---- traces ----

constexpr std::size_t kUses = 8'000;

Trace loop(std::uint32_t length) {
  Trace trace(kUses);
  for (std::size_t i = 0; i < kUses; ++i) trace[i] = static_cast<std::uint32_t>(i % length);
  return trace;
}
Trace hot_set_and_scan() {
  std::mt19937 random(1);
  Trace trace;
  for (std::uint32_t i = 0, scanned = 1000; i < kUses; ++i)
    trace.push_back(i % 4 ? random() % 80 : scanned++);
  return trace;
}
Trace zipf(double exponent, std::uint32_t shift_every = 0) {
  std::vector<double> weights(1000);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::pow(static_cast<double>(i + 1), -exponent);
  std::discrete_distribution<std::uint32_t> rank(weights.begin(), weights.end());
  std::mt19937 random(2);
  Trace trace;
  for (std::uint32_t i = 0; i < kUses; ++i)
    trace.push_back((rank(random) + (shift_every ? i / shift_every * 137 : 0)) % 1000);
  return trace;
}

class VictimPolicy : public test::RegistryTest {
 protected:
  /// Hits of the registry, with room for kFits regions of a page. `next`: for each use, the number of the
  /// next use of the same page; null: no prediction.
  std::size_t ours(const Trace& trace, const std::vector<std::size_t>* next = nullptr) {
    limit(pages_bytes(kFits));
    const std::size_t before = device.calls();
    for (std::size_t i = 0; i < trace.size(); ++i) {
      clock.advance(kMillisecond);
      const Ticks now = clock.ticks();
      Region* region = acquire(pages(2 * trace[i], 2 * trace[i] + 1));
      if (!region) return 0;
      clock.advance(kMicrosecond);
      domain->release(region, now, clock.ticks());
      if (next)
        domain->expect({region, region->generation()},
                       (*next)[i] == SIZE_MAX ? 0 : static_cast<Time>((*next)[i]));
    }
    retire_all(*domain, Actor::helper, [](auto&&...) {});
    return trace.size() - (device.calls() - before);
  }
};

double share(std::size_t hits) { return static_cast<double>(hits) / kUses; }

TEST_F(VictimPolicy, OfALoopThatDoesNotFitAPartStays) {
  for (const std::uint32_t length : {101, 150, 200, 400}) {
    const Trace trace = loop(length);
    EXPECT_EQ(lru(trace), 0u);
    EXPECT_EQ(sieve(trace), 0u);
    EXPECT_GT(share(ours(trace)), share(belady(trace)) - 0.05) << length;
  }
}

TEST_F(VictimPolicy, AScanDrivesNothingOut) {
  const Trace trace = hot_set_and_scan();
  EXPECT_GT(share(ours(trace)), share(belady(trace)) - 0.02);
  EXPECT_GT(share(ours(trace)), share(lru(trace)) + 0.15);
}

TEST_F(VictimPolicy, PopularOnesStay) {
  for (const double exponent : {0.7, 1.0, 1.2}) {
    const Trace trace = zipf(exponent);
    EXPECT_GT(share(ours(trace)), share(lru(trace)) + 0.02) << exponent;
    EXPECT_GT(share(ours(trace)), share(sieve(trace)) - 0.06) << exponent;
  }
  const Trace shifting = zipf(1.0, 2000);
  EXPECT_GT(share(ours(shifting)), share(lru(shifting)) + 0.02);
  EXPECT_GT(share(ours(shifting)), share(sieve(shifting)));
}

TEST_F(VictimPolicy, WithPredictionsItIsBeladysRule) {
  for (const Trace& trace : {loop(150), hot_set_and_scan(), zipf(1.0)}) {
    std::vector<std::size_t> next(trace.size());
    std::unordered_map<std::uint32_t, std::size_t> later;
    for (std::size_t i = trace.size(); i-- > 0; later[trace[i]] = i)
      next[i] = later.count(trace[i]) ? later[trace[i]] : SIZE_MAX;
    EXPECT_EQ(ours(trace, &next), belady(trace));
  }
}

// Regions of the same interval: those go whose bytes are registered again soonest.
TEST_F(VictimPolicy, LargeRegionsGoBeforeManySmallOnes) {
  limit(pages_bytes(600));
  const auto use = [&](Range range) {
    clock.advance(kMillisecond);
    const Ticks now = clock.ticks();
    Region* region = acquire(range);
    ASSERT_NE(region, nullptr);
    clock.advance(kMicrosecond);
    domain->release(region, now, clock.ticks());
  };
  for (int round = 0; round < 3; ++round) {
    use(pages(10'000, 10'512));
    for (std::size_t i = 0; i < 16; ++i) use(pages(10 * i, 10 * i + 4));
  }
  use(pages(20'000, 20'064));
  EXPECT_FALSE(hits(pages(10'000, 10'512)));
  for (std::size_t i = 0; i < 16; ++i) EXPECT_TRUE(hits(pages(10 * i, 10 * i + 4))) << i;
}

// A hit writes no more than is needed: when it was, and once memory is short the interval too.
TEST_F(VictimPolicy, IntervalsAreKeptFromTheFirstPressureOn) {
  limit(pages_bytes(2));
  Region* region = idle(pages(0, 1));
  const auto use = [&] {
    clock.advance(kMillisecond);
    const Ticks now = clock.ticks();
    ASSERT_EQ(hit(pages(0, 1)), region);
    domain->release(region, now, now);
    EXPECT_EQ(region->last_use.load(), now);
  };
  use();
  use();
  EXPECT_EQ(region->interval.load(), 0u);
  idle(pages(2, 3), clock.ticks() - 1);
  idle(pages(4, 5), clock.ticks());  // the older of the others goes
  use();
  EXPECT_EQ(region->interval.load(), static_cast<Ticks>(kMillisecond));
}

TEST_F(VictimPolicy, RegionsInUseArePassedOver) {
  limit(pages_bytes(100));
  std::vector<Region*> leased;
  for (std::size_t i = 0; i < 99; ++i) {
    leased.push_back(acquire(pages(2 * i, 2 * i + 1)));
    domain->expect({leased.back(), leased.back()->generation()}, i % 2 ? 1'000'000 : 0);
  }
  for (std::size_t i = 0; i < 50; ++i) EXPECT_NE(idle(pages(1000 + 2 * i, 1001 + 2 * i)), nullptr);
  EXPECT_EQ(device.live(), 100u);
  for (Region* region : leased) {
    EXPECT_TRUE(device.serves(region->key, region->range(), Access::read));
    domain->release(region);
  }
}

// Keys of the heap change in every way, against a sorted set.
TEST(RegionHeap, TheLeastIsOnTop) {
  std::vector<Region> regions(200);
  RegionHeap heap(1);
  std::map<Region*, std::int64_t> keys;
  std::mt19937 random(3);
  for (int step = 0; step < 20'000; ++step) {
    Region* region = &regions[random() % regions.size()];
    const auto key = static_cast<std::int64_t>(random() % 1000);
    ASSERT_EQ(heap.contains(region), keys.count(region) == 1);
    if (!heap.contains(region)) {
      heap.push(region, key);
      keys[region] = key;
    } else if (random() % 2) {
      heap.rekey(region, key);
      keys[region] = key;
    } else {
      heap.erase(region);
      keys.erase(region);
    }
    ASSERT_EQ(heap.size(), keys.size());
    if (heap.empty()) continue;
    const auto least =
        std::min_element(keys.begin(), keys.end(), [](auto& a, auto& b) { return a.second < b.second; });
    ASSERT_EQ(heap.top_key(), least->second);
    ASSERT_EQ(keys[heap.top()], least->second);
  }
}

}  // namespace
}  // namespace pinion
