// Memory that changes before, during and after a registration.

#include <gtest/gtest.h>

#include <vector>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

// ---- memory events ----

TEST_F(RegistryTest, DoomedIdleRegionIsRetired) {
  idle(pages(0, 4));
  change(pages(3, 10));
  EXPECT_FALSE(hits(pages(0, 1)));
  EXPECT_EQ(device.live(), 1u);  // hooks make no device call
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(device.live(), 0u);
  EXPECT_TRUE(hits(idle(pages(0, 4))->range()));
}

TEST_F(RegistryTest, DoomedLeasedRegionIsRetiredAtItsLastRelease) {
  Region* region = acquire(pages(0, 4));
  ASSERT_EQ(hit(pages(0, 4)), region);
  change(pages(0, 1));
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_EQ(reap(), 0u);
  EXPECT_EQ(domain->release(region), Released::in_use);
  EXPECT_EQ(reap(), 0u);
  EXPECT_EQ(domain->release(region), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
}

TEST_F(RegistryTest, NeighboursOfChangedMemoryStay) {
  idle(pages(0, 4));
  idle(pages(4, 8));
  idle(pages(8, 12));
  change(pages(4, 8));
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(4, 8)));
  EXPECT_TRUE(hits(pages(8, 12)));
}

TEST_F(RegistryTest, NewMemoryBesideADoomedLeaseIsServed) {
  Region* old = acquire(pages(0, 20));
  change(pages(10, 20));
  // The rest of the old buffer is still mapped; the changed part is not.
  device.refuse = [](Range range, Access) { return range.overlaps(pages(10, 20)) ? EFAULT : 0; };
  Region* rest = acquire(pages(2, 6));
  ASSERT_NE(rest, nullptr);
  EXPECT_EQ(rest->range(), pages(2, 6));
  const auto calls = device.calls();
  EXPECT_TRUE(hits(pages(2, 6)));
  EXPECT_EQ(acquire(pages(3, 5)), rest);
  EXPECT_EQ(device.calls(), calls);
  change(pages(5, 6));
  EXPECT_FALSE(hits(pages(2, 6)));
  domain->release(rest);
  domain->release(rest);
  EXPECT_EQ(domain->release(old), Released::idle_doomed);
  EXPECT_EQ(reap(), 2u);
}

TEST_F(RegistryTest, NothingIsRegisteredInsideABracket) {
  brackets.open(pages(2, 3));
  auto inside = ticket(pages(0, 4));
  EXPECT_EQ(run(inside), Step::refused);
  EXPECT_EQ(inside.result().error.code, EAGAIN);
  EXPECT_EQ(device.calls(), 0u);
  EXPECT_NE(idle(pages(3, 4)), nullptr);
  brackets.close(pages(2, 3));
  EXPECT_NE(idle(pages(0, 4)), nullptr);
}

// While events may be missed, a thread's registration may be stale for another.
TEST_F(RegistryTest, BlindRegistrationsServeOneLease) {
  brackets.sight.lost();
  Region* whole = acquire(pages(0, 8));
  ASSERT_NE(whole, nullptr);
  EXPECT_FALSE(hits(pages(0, 8)));
  Region* part = acquire(pages(0, 4));
  EXPECT_EQ(part->range(), pages(0, 4)) << "of its own";
  Region* beyond = acquire(pages(2, 10));
  EXPECT_EQ(beyond->range(), pages(2, 10)) << "not merged";
  EXPECT_EQ(device.live(), 3u);
  for (Region* region : {whole, part, beyond}) EXPECT_EQ(domain->release(region), Released::idle_doomed);
  EXPECT_EQ(reap(), 3u);

  auto ahead = ticket(pages(0, 4));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::refused);
  EXPECT_EQ(device.live(), 0u);

  brackets.sight.regained(brackets.sight.look());
  EXPECT_NE(idle(pages(0, 4)), nullptr);
  EXPECT_TRUE(hits(pages(0, 4)));
}

// Sight that is lost while the device registers: the hook finds the placeholder. Lost and regained between
// the look and the index: the registering thread finds that out itself, which the schedule tests show.
TEST_F(RegistryTest, SightLostDuringARegistration) {
  int losses = 1;
  device.refuse = [&](Range, Access) {
    if (losses-- <= 0) return 0;
    brackets.sight.lost();
    change(pages(0, 1000));
    brackets.sight.regained(brackets.sight.look());
    return 0;
  };
  EXPECT_NE(idle(pages(0, 4)), nullptr);
  EXPECT_EQ(device.calls(), 2u) << "the first was not believed";
  EXPECT_TRUE(hits(pages(0, 4)));

  losses = 1;
  auto ahead = ticket(pages(8, 12));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::refused) << "it has changed since its use was predicted";
}

// A merge reaches beyond the request; a bracket there must not hold the request up.
TEST_F(RegistryTest, BracketBesideTheRequestDoesNotHoldItUp) {
  idle(pages(0, 8));
  brackets.open(pages(0, 2));  // the hook has not come to doom yet
  const auto calls = device.calls();
  Region* region = acquire(pages(6, 12));
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(region->range(), pages(6, 12));
  EXPECT_EQ(device.calls(), calls + 1);
  domain->doom(pages(0, 2));
  brackets.close(pages(0, 2));
  EXPECT_TRUE(hits(pages(6, 12)));
  domain->release(region);
}

TEST_F(RegistryTest, RegionDoomedDuringItsRegistrationNeverServes) {
  int registrations = 0;
  device.refuse = [&](Range, Access) {
    if (++registrations <= 2) {
      change(pages(3, 4));
      EXPECT_FALSE(hits(pages(0, 4)));
    }
    return 0;
  };
  auto miss = ticket(pages(0, 4));
  EXPECT_EQ(run(miss), Step::leased);
  EXPECT_EQ(registrations, 3);
  EXPECT_TRUE(miss.result().registered_here);
  EXPECT_EQ(device.live(), 1u);
  domain->release(miss.result().region);
}

TEST_F(RegistryTest, DoomedRegistrationThatEndsInAHitIsNotItsOwn) {
  Acquisition first = ticket(pages(0, 4));
  ASSERT_EQ(first.next(clock.now()), Step::register_);
  change(pages(0, 1));
  auto second = ticket(pages(0, 4));
  EXPECT_EQ(run(second), Step::leased);
  const auto registration = device.register_range(first.range(), first.rights(), Actor::application);
  ASSERT_EQ(first.registered(registration, clock.now()), Step::deregister);
  for (Region* victim : first.victims()) retire_claimed(*domain, victim, Actor::application);
  EXPECT_EQ(run(first), Step::leased);
  EXPECT_EQ(first.result().region, second.result().region);
  EXPECT_FALSE(first.result().registered_here);
  domain->release(first.result().region);
  domain->release(second.result().region);
}

TEST_F(RegistryTest, ReapListStandsStorms) {
  for (int storm = 0; storm < 50; ++storm) {
    std::vector<Region*> leased;
    for (std::size_t i = 0; i < 40; ++i) {
      Region* region = acquire(pages(4 * i, 4 * i + 2));
      ASSERT_NE(region, nullptr);
      if (i % 3 == 0)
        leased.push_back(region);
      else
        domain->release(region);
    }
    for (int again = 0; again < 3; ++again) change(pages(0, 1000));
    EXPECT_TRUE(domain->idle_regions().empty());
    const std::size_t reaped = storm % 2 == 0 ? reap() : 0;
    if (storm % 2 == 0) {
      EXPECT_EQ(reaped, 40 - leased.size());
    }
    for (Region* region : leased) EXPECT_EQ(domain->release(region), Released::idle_doomed);
    EXPECT_EQ(reap(), 40 - reaped);
    EXPECT_EQ(device.live(), 0u);
  }
}

}  // namespace
}  // namespace pinion::domain_test
