// Shared by the tests of the helper's decisions: the retention alone, on a virtual clock.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "predict/paper_predictors.h"
#include "registry/blocking.h"
#include "retention/helper_retention.h"
#include "support/virtual_helper.h"

namespace pinion::helper_test {

using test::virtual_pages;
using test::VirtualHelper;
using Kind = Retention::Action::Kind;

constexpr Time kStart = kSecond;
constexpr Duration kPeriod = 10 * kMillisecond;
/// The helper looks so long after a transfer should be over.
constexpr Duration kOver = 10 * kMicrosecond;

/// No cost at all.
inline const LinearFit kFree{0, 0};

/// Returns the test's predictions, and records its observations.
class ToldPredictor : public Predictor {
 public:
  const char* name() const override { return "told"; }
  Observed observe(const Use& use) override {
    uses.push_back(use);
    return {next, next};
  }
  Time next_use(BufferId, Time) const override { return next; }
  void forget(BufferId) override {}
  bool samples_runs() const override { return samples; }
  Time next = kNever;
  bool samples = false;
  std::vector<Use> uses;
};

/// A use of `range` from `begin` to `end`, hit or miss by its outcome, as in the log.
inline runlog::Event lease_of(Range range, Time begin, Time end, std::uint64_t site = 0) {
  runlog::Event lease{};
  lease.kind = runlog::EventKind::lease;
  lease.begin_ns = begin;
  lease.end_ns = end;
  lease.address = range.begin;
  lease.bytes = range.bytes();
  lease.site = site;
  return lease;
}

/// The retention alone over a domain whose device costs nothing: the test is application, helper and clock.
class RetentionTest : public ::testing::Test {
 protected:
  VirtualClock clock;
  ModelDevice device{nic()};
  Budget budget{Limits{}};
  Brackets brackets;
  Domain domain{device, budget, brackets, clock, nullptr};
  CostEstimates costs;
  ShortestPredictor shortest{0};
  ToldPredictor told;
  HelperRetention retention{domain, shortest, costs, {}};
  RecentRegions recent;

  // Device calls report their expected times, so that they teach nothing new.

  /// Takes no time; 5000 pages in one region.
  static CostModel nic() {
    CostModel nic;
    nic.caps.max_region_bytes = 5000 * page_size();
    return nic;
  }

  /// A lease, by a registration where that is needed.
  Region* acquire(Range range) {
    Acquisition acquisition(domain, {.pages = domain.unit_of(range)});
    EXPECT_EQ(run_blocking(acquisition, Actor::application), AcquireStep::leased);
    return acquisition.result().region;
  }
  /// A transfer that takes no time, learnt by `who`. Whether it was late.
  bool use(Retention& who, Range range, Time time, std::uint64_t site = 1) {
    clock.set(time);
    runlog::Event lease = lease_of(range, time, time, site);
    Region* region = domain.try_hit(range, Access::read, recent);
    if (!region) {
      region = acquire(range);
      lease.outcome = runlog::Outcome::miss;
    }
    const RegionRef ref{region, region->generation()};
    domain.release(region);
    return who.use(lease, ref, 0);
  }
  bool use(Range range, Time time, std::uint64_t site = 1) { return use(retention, range, time, site); }

  Kind what(Time now) { return retention.next(now).kind; }
  void deregister(const Retention::Action& action, Time now) {
    ASSERT_EQ(action.kind, Kind::deregister);
    retire_claimed(domain, action.region, Actor::helper);
    retention.done(action, {}, true, costs.deregistration.expected(action.pages.pages()), now);
  }
  void register_ahead(const Retention::Action& action, Time now) {
    ASSERT_EQ(action.kind, Kind::register_ahead);
    Acquisition acquisition(domain, {.pages = action.pages, .access = action.access, .lease = false});
    ASSERT_EQ(run_blocking(acquisition, Actor::helper), AcquireStep::leased);
    Region* const region = acquisition.result().region;
    retention.done(action, {region, region->generation()}, true, 0, now);
  }
  /// The use that should be over by then does not come: each look for it is twice as far away, up to the last
  /// one, whether its region goes.
  void expect_wakes(Time over, Time look = kNever) {
    for (Duration later = 0; later < kMillisecond; later = std::max(2 * later, 20 * kMicrosecond)) {
      EXPECT_EQ(what(over + later), Kind::sleep);
      const Time wake = std::min(over + std::max(2 * later, 20 * kMicrosecond), look);
      EXPECT_EQ(retention.next_deadline(), wake);
      if (wake == look) return;
    }
    EXPECT_EQ(what(over + 1280 * kMicrosecond), Kind::sleep);
  }
  /// Lets go all regions due at `now`.
  void settle(Time now) {
    for (auto action = retention.next(now); action.kind != Kind::sleep; action = retention.next(now))
      deregister(action, now);
  }
  /// Uses of `range` at kStart and kStart + kPeriod, let go after each: due again at kStart + 2 kPeriod.
  void learn(Range range) {
    use(range, kStart);
    settle(kStart);
    use(range, kStart + kPeriod);
  }
};

}  // namespace pinion::helper_test
