// The strategies that decide on application threads, through the one interface and its factory: which regions
// they claim, and when.
#include <gtest/gtest.h>

#include "registry/blocking.h"
#include "retention/desk.h"
#include "retention/retention.h"
#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;
using test::RegistryTest;

class RetentionKindsTest : public RegistryTest {
 protected:
  CostEstimates costs;
  TimeBudget budget_of_time{{}, 0};

  std::unique_ptr<Retention> make(RetentionKind kind, std::uint64_t lru_bytes = 0) {
    return make_retention({.kind = kind, .lru_bytes = lru_bytes}, *domain, make_predictor("shortest", 0, 4),
                          costs, budget_of_time);
  }
  void retire(Region* region) { retire_claimed(*domain, region, Actor::application); }
};

TEST_F(RetentionKindsTest, OnDemandClaimsWhatIsReleased) {
  const auto retention = make(RetentionKind::on_demand);
  Region* other = idle(pages(10, 12));
  Region* region = idle(pages(0, 2));
  EXPECT_EQ(retention->claim_after_registration(), nullptr);
  const RegionRef ref{region, region->generation()};
  EXPECT_EQ(retention->claim_after_release(ref), region);
  EXPECT_EQ(retention->claim_after_release(ref), nullptr);
  retire(region);
  // A region that no release found idle goes after a sweep.
  EXPECT_EQ(retention->next(0).kind, Retention::Action::Kind::sleep);
  retention->sweep();
  const auto action = retention->next(0);
  EXPECT_EQ(action.kind, Retention::Action::Kind::deregister);
  EXPECT_EQ(action.region, other);
  retire(other);
  EXPECT_EQ(retention->next(0).kind, Retention::Action::Kind::sleep);
}

TEST_F(RetentionKindsTest, LeavePinnedClaimsNothing) {
  const auto retention = make(RetentionKind::leave_pinned);
  Region* region = idle(pages(0, 2));
  EXPECT_EQ(retention->claim_after_registration(), nullptr);
  EXPECT_EQ(retention->claim_after_release({region, region->generation()}), nullptr);
  retention->sweep();
  EXPECT_EQ(retention->next(0).kind, Retention::Action::Kind::sleep);
  EXPECT_EQ(retention->next_deadline(), kNever);
}

TEST_F(RetentionKindsTest, LruClaimsTheLeastRecentlyUsedBeyondItsSize) {
  const auto retention = make(RetentionKind::lru, pages_bytes(4));
  Region* first = idle(pages(0, 2), 1);
  Region* second = idle(pages(10, 12), 2);
  Region* third = idle(pages(20, 22), 3);
  const RegionRef last{third, third->generation()};
  EXPECT_EQ(retention->claim_after_release(last), first);
  EXPECT_EQ(retention->claim_after_release(last), nullptr);  // `first` is on its way out
  retire(first);
  EXPECT_EQ(retention->claim_after_registration(), nullptr);
  Region* fourth = idle(pages(30, 33), 4);
  EXPECT_EQ(retention->claim_after_registration(), second);
  retire(second);
  EXPECT_EQ(retention->next(0).kind, Retention::Action::Kind::sleep);
  retention->sweep();
  EXPECT_EQ(retention->next(0).region, third);
  retire(third);
  EXPECT_EQ(retention->next(0).kind, Retention::Action::Kind::sleep);
  EXPECT_TRUE(hits(fourth->range()));
}

TEST_F(RetentionKindsTest, TraitsHoldOfTheObjects) {
  for (const RetentionKind kind : kRetentionKinds) {
    const auto retention = make(kind, 0);
    Region* region = idle(pages(0, 2));
    Region* claimed = retention->claim_after_release({region, region->generation()});
    EXPECT_EQ(claimed != nullptr, traits_of(kind).decides_on_threads) << to_string(kind);
    if (claimed) retire(claimed);
    retire_all(*domain, Actor::application, [](auto&&...) {});
  }
}

// ---- the desk ----

class DeskTest : public RegistryTest {
 protected:
  Desk desk{{.traits = traits_of(RetentionKind::on_demand), .time_budget = {}, .scale = {}}};
  KeptDomain kept;

  void SetUp() override {
    RegistryTest::SetUp();
    kept.domain = domain.get();
    kept.retention =
        make_retention({.kind = RetentionKind::on_demand}, *domain, nullptr, kept.costs, desk.time_budget());
    desk.add(kept);
  }
  Desk::Job next() {
    return desk.next(0, [] {});
  }
  void carry_out(const Desk::Job& job) {
    for (Region* region : job.regions) retire_claimed(*domain, region, Actor::helper);
    desk.done(job, {}, true, 0, 0);
  }
};

// Doomed regions come first, then the share of other processes, then decisions of retention.
TEST_F(DeskTest, MostUrgentJobFirst) {
  idle(pages(0, 2), 1);
  idle(pages(10, 14), 2);
  Region* doomed = idle(pages(20, 22), 3);
  change(pages(20, 22));
  desk.share(*budget, pages_bytes(2), 0, true);
  desk.sweep();
  Desk::Job job = next();
  EXPECT_EQ(job.regions, std::vector<Region*>{doomed});
  EXPECT_FALSE(job.decided);
  carry_out(job);
  job = next();
  EXPECT_FALSE(job.decided);
  EXPECT_FALSE(job.regions.empty());
  carry_out(job);
  EXPECT_LE(budget->bytes(), pages_bytes(2));
  while ((job = next()).kind != Desk::Job::Kind::none) {
    EXPECT_TRUE(job.decided);
    carry_out(job);
  }
  EXPECT_EQ(domain->region_count(), 0u);
}

TEST_F(DeskTest, ARecordLeavesAsItsEvent) {
  Record record;
  record.kind = runlog::EventKind::lease;
  record.begin = 100;
  record.end = 300;
  record.wait = 20;
  record.delayed = 5;
  record.address = pages(0, 1).begin + 8;
  record.bytes = 64;
  record.site = 7;
  record.peer = 3;
  record.call = CallKind::send;
  record.access = Access::all;
  record.outcome = runlog::Outcome::miss;
  desk.time_budget().waited(5 + 20);
  const runlog::Event event = desk.take({record, 2}, {.wait = 15});
  EXPECT_EQ(event.begin_ns, 100);
  EXPECT_EQ(event.end_ns, 300);
  EXPECT_EQ(event.wait_ns, 20u);
  EXPECT_EQ(event.address, record.address);
  EXPECT_EQ(event.bytes, 64u);
  EXPECT_EQ(event.site, 7u);
  EXPECT_EQ(event.peer, 3);
  EXPECT_EQ(event.thread, 2);
  EXPECT_EQ(event.outcome, runlog::Outcome::miss);
  EXPECT_EQ(event.flags, 0);
  EXPECT_EQ(desk.time_budget().on_threads(), 5 + 20 - 15);
}

// Leave-pinned would have it too.
TEST_F(DeskTest, AWaitForWantOfRoomIsTheLimits) {
  Record record;
  record.kind = runlog::EventKind::lease;
  record.wait = 20;
  record.address = pages(0, 1).begin;
  record.bytes = 64;
  record.outcome = runlog::Outcome::bounced;
  desk.time_budget().waited(20);
  desk.take({record, 0}, {});
  EXPECT_EQ(desk.time_budget().on_threads(), 0);

  record.outcome = runlog::Outcome::miss;
  desk.time_budget().waited(40);
  desk.take({record, 0}, {});
  EXPECT_EQ(desk.time_budget().on_threads(), 20) << "no limit binds";
  desk.time_budget().set_limit_binds(true);
  desk.time_budget().waited(60);
  desk.take({record, 0}, {});
  EXPECT_EQ(desk.time_budget().on_threads(), 20);
}

/// A registration of four pages.
Record registration_of(Range pages, Ticks took) {
  Record record;
  record.kind = runlog::EventKind::registration;
  record.begin = 100;
  record.end = 100 + took;
  record.address = pages.begin;
  record.bytes = pages.bytes();
  record.set_entries(4);
  return record;
}

// Pages that were never touched take 22 ms at first, and 4 ms from then on.
TEST_F(DeskTest, FirstTouchesTeachNoCost) {
  const Duration before = kept.costs.registration.expected(4);
  desk.take({registration_of(pages(0, 4), 22 * kMillisecond), 0}, {.fresh_bytes = pages_bytes(4)});
  EXPECT_EQ(kept.costs.registration.expected(4), before);
  EXPECT_EQ(kept.costs.registration.upper(4), before);
  desk.take({registration_of(pages(0, 4), 2 * before), 0}, {});
  EXPECT_GT(kept.costs.registration.expected(4), before) << "registered again";
  const Duration now = kept.costs.registration.expected(4);
  desk.take({registration_of(pages(8, 12), before / 2), 0}, {.fresh_bytes = pages_bytes(4)});
  EXPECT_LT(kept.costs.registration.expected(4), now) << "it cannot take longer than with a first touch";
}

TEST_F(DeskTest, WhatThreadsLostInACallIsNoCostOfTheCall) {
  const Duration usual = kept.costs.registration.expected(4);
  Record registration = registration_of(pages(0, 4), usual + 3 * kMillisecond);
  registration.set_preempted(3 * kMillisecond);
  const runlog::Event event = desk.take({registration, 0}, {});
  EXPECT_EQ(event.wait_ns, 3000000u);
  EXPECT_EQ(event.end_ns - event.begin_ns, usual + 3 * kMillisecond) << "the log has all of it";
  EXPECT_NEAR(kept.costs.registration.expected(4), usual, 2);
  EXPECT_NEAR(kept.costs.registration.upper(4), usual, 2);
}

TEST_F(DeskTest, EverythingEndsWhereAddressesDo) {
  const runlog::Event everything = desk.take({memory_event_at(7, {0, ~Address{0}}), 0}, {});
  EXPECT_EQ(everything.begin_ns, 7);
  EXPECT_EQ(everything.address, 0u);
  EXPECT_EQ(everything.bytes, kAddressEnd / 2 - 1);  // the most that a record holds
  const Address begin = pages(0, 1).begin;
  const runlog::Event rest = desk.take({memory_event_at(7, {begin, ~Address{0}}), 0}, {});
  EXPECT_EQ(rest.address, begin);
  EXPECT_EQ(rest.bytes, kAddressEnd / 2 - 1);
}

TEST_F(DeskTest, FailedDeviceCallsTeachNoCosts) {
  const Duration before = kept.costs.registration.expected(1);
  Record record;
  record.kind = runlog::EventKind::registration;
  record.end = 1000000000;
  record.bytes = page_size();
  record.flags = runlog::kFailed;
  desk.take({record, 0}, {});
  EXPECT_EQ(kept.costs.registration.expected(1), before);
  record.flags = 0;
  desk.take({record, 0}, {});
  EXPECT_GT(kept.costs.registration.expected(1), before);
}

}  // namespace
}  // namespace pinion
