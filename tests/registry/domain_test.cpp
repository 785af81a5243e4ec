// The registration cache through its steps, on one thread: matching, merging, limits, failures, memory
// events.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;
using test::RegistryTest;
using Step = AcquireStep;
using Released = RegionWord::Released;

constexpr Access kReadWrite = Access::read | Access::write;

// ---- matching ----

TEST_F(RegistryTest, MissRegistersAndThenHits) {
  EXPECT_FALSE(hits(pages(0, 4)));
  Region* region = acquire(pages(0, 4));
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(device.calls(), 1u);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(4));
  EXPECT_EQ(hit(pages(0, 4)), region);
  EXPECT_EQ(domain->release(region), Released::in_use);
  EXPECT_EQ(domain->release(region), Released::idle);
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_EQ(device.calls(), 1u);
}

TEST_F(RegistryTest, SubRangesHitAndLargerOnesDoNot) {
  idle(pages(10, 20));
  EXPECT_TRUE(hits(pages(10, 11)));
  EXPECT_TRUE(hits(pages(19, 20)));
  const Range page = pages(15, 16);
  EXPECT_TRUE(hits({page.begin + 100, page.begin + 200}));
  EXPECT_FALSE(hits(pages(9, 11)));
  EXPECT_FALSE(hits(pages(19, 21)));
  EXPECT_FALSE(hits(pages(9, 21)));
  EXPECT_FALSE(hits(pages(20, 21)));
  EXPECT_EQ(device.calls(), 1u);
}

TEST_F(RegistryTest, RequestsAreRoundedToPages) {
  const Range page = pages(3, 4);
  idle({page.begin + 1, page.begin + 2});
  EXPECT_TRUE(hits(page));
  idle({page.end - 1 + page_size(), page.end + 1 + page_size()});
  EXPECT_TRUE(hits(pages(4, 6)));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(3));
}

TEST_F(RegistryTest, AllRightsAreAskedForFirst) {
  Region* region = idle(pages(0, 4));
  EXPECT_EQ(region->access.load(), Access::all);
  EXPECT_TRUE(hits(pages(0, 4), Access::all));
}

TEST_F(RegistryTest, RightsAreASuperset) {
  int calls = 0;
  device.refuse = [&](Range, Access access) { return ++calls, access == Access::all ? EFAULT : 0; };
  idle(pages(0, 4), 0, kReadWrite);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(hits(pages(0, 4), Access::read));
  EXPECT_TRUE(hits(pages(0, 4), Access::write));
  EXPECT_FALSE(hits(pages(0, 4), Access::remote_read));
  EXPECT_FALSE(hits(pages(0, 4), Access::write | Access::remote_write));
}

TEST_F(RegistryTest, ReadOnlyMemoryFallsBackToWhatWasAsked) {
  device.refuse = [](Range, Access access) { return includes(access, Access::write) ? EFAULT : 0; };
  Region* region = idle(pages(0, 4));
  EXPECT_EQ(region->access.load(), Access::read);
  auto write = ticket(pages(0, 4), Access::write);
  EXPECT_EQ(run(write), Step::refused);
  EXPECT_EQ(write.result().error.code, EFAULT);
  EXPECT_EQ(idle(pages(0, 4))->access.load(), Access::read);
}

TEST_F(RegistryTest, MoreRightsReplaceTheRegion) {
  bool read_only = true;
  device.refuse = [&](Range, Access access) {
    return read_only && includes(access, Access::write) ? EFAULT : 0;
  };
  Region* reading = acquire(pages(0, 4));
  read_only = false;
  Region* writing = acquire(pages(0, 4), Access::write);
  ASSERT_NE(writing, nullptr);
  EXPECT_NE(writing, reading);
  EXPECT_TRUE(device.serves(reading->key, pages(0, 4), Access::read));  // its lease still holds
  EXPECT_EQ(domain->release(reading), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(domain->release(writing), Released::idle);
  EXPECT_EQ(device.live(), 1u);
}

// A part of a region needs rights that the whole cannot have: the index must not hold one inside the other,
// or its order would hide the larger one from memory events.
TEST_F(RegistryTest, WherePeersCanGetAKeyTheRightsAreThoseAskedFor) {
  device.remote = true;
  domain->device_changed();
  for (const Access access : {Access::read, Access::write, Access::remote_read,
                              Access::write | Access::remote_write, Access::all}) {
    EXPECT_EQ(idle(pages(0, 4), 0, access)->access.load(), access);
    EXPECT_TRUE(hits(pages(0, 4), Access::read)) << "more rights serve requests for fewer";
    EXPECT_EQ(device.live(), 1u) << "the region with fewer rights was not replaced";
  }
  EXPECT_EQ(device.calls(), 5u);
}

TEST_F(RegistryTest, WherePeersCanGetAKeyRefusedRightsAreNotAskedForAgain) {
  device.remote = true;
  domain->device_changed();
  device.refuse = [](Range, Access access) { return includes(access, Access::write) ? EFAULT : 0; };
  auto writing = ticket(pages(0, 4), Access::write);
  EXPECT_EQ(run(writing), Step::refused);
  EXPECT_EQ(writing.result().error.code, EFAULT);
  EXPECT_EQ(device.calls(), 1u);
  EXPECT_EQ(idle(pages(0, 4))->access.load(), Access::read);
}

TEST_F(RegistryTest, ALeasedRegionWithFewerRightsKeepsItsKeyToTheEnd) {
  device.remote = true;
  domain->device_changed();
  Region* const reading = acquire(pages(0, 4), Access::remote_read);
  Region* const writing = acquire(pages(0, 4), Access::remote_read | Access::remote_write);
  ASSERT_NE(reading, writing);
  EXPECT_TRUE(device.serves(reading->key, pages(0, 4), Access::remote_read));
  EXPECT_FALSE(device.serves(reading->key, pages(0, 4), Access::remote_write));
  EXPECT_EQ(device.live(), 2u);
  domain->release(reading);
  domain->release(writing);
  auto other = ticket(pages(8, 9));
  ASSERT_EQ(run(other), Step::leased);
  domain->release(other.result().region);
  EXPECT_EQ(device.live(), 2u) << "the replaced region was not let go";
  EXPECT_TRUE(hits(pages(0, 4), Access::remote_write));
}

TEST_F(RegistryTest, WherePeersCanGetAKeyMergesGiveNobodyMoreRights) {
  device.remote = true;
  domain->device_changed();
  idle(pages(0, 10), 0, Access::read);
  Region* const writing = idle(pages(5, 15), 0, Access::remote_write);
  EXPECT_EQ(writing->range(), pages(5, 15)) << "memory that was for reading alone became writable";
  EXPECT_TRUE(hits(pages(0, 10), Access::read));
  EXPECT_FALSE(hits(pages(0, 10), Access::remote_write));
  EXPECT_EQ(idle(pages(12, 20), 0, Access::remote_write)->range(), pages(5, 20));
  EXPECT_EQ(device.live(), 2u);
}

TEST_F(RegistryTest, PartWithMoreRightsThanTheWholeStaysVisible) {
  device.refuse = [](Range range, Access access) {
    return includes(access, Access::write) && range.overlaps(pages(12, 20)) ? EFAULT : 0;
  };
  for (int turn = 0; turn < 3; ++turn) {
    Region* whole = acquire(pages(0, 20));
    Region* part = acquire(pages(4, 8), Access::write);
    ASSERT_TRUE(whole && part);
    EXPECT_TRUE(device.serves(whole->key, pages(0, 20), Access::read));
    domain->release(whole);
    domain->release(part);
    change(pages(10, 11));
    EXPECT_FALSE(hits(pages(8, 12)));
    EXPECT_FALSE(hits(pages(0, 20)));
    EXPECT_TRUE(hits(pages(4, 8), Access::write));
    reap();
  }
}

TEST_F(RegistryTest, OneBufferMayServeWhereItsNeighbourCannot) {
  Region* first = idle(pages(0, 10));
  device.refuse = [](Range, Access access) { return includes(access, Access::write) ? EFAULT : 0; };
  idle(pages(9, 20));  // read-only; the page between them belongs to both
  const auto calls = device.calls();
  EXPECT_EQ(acquire(pages(9, 10), Access::write), first);
  EXPECT_EQ(device.calls(), calls);
  domain->release(first);
}

// ---- neighbours and merging ----

TEST_F(RegistryTest, NeighboursStayApart) {
  Region* left = idle(pages(0, 4));
  Region* touching = idle(pages(4, 8));
  Region* sharing = idle(pages(7, 12));
  EXPECT_EQ(left->range(), pages(0, 4));
  EXPECT_EQ(touching->range(), pages(4, 8));
  EXPECT_EQ(sharing->range(), pages(7, 12));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(12));  // the shared page counts once
  for (Range range : {pages(0, 4), pages(4, 8), pages(7, 12), pages(7, 8)}) EXPECT_TRUE(hits(range));
  EXPECT_EQ(device.calls(), 3u);
}

TEST_F(RegistryTest, OverlapsAreMerged) {
  idle(pages(0, 6));
  idle(pages(20, 26));
  Region* merged = idle(pages(4, 22));
  EXPECT_EQ(merged->range(), pages(0, 26));
  EXPECT_EQ(device.live(), 1u);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(26));
  EXPECT_TRUE(hits(pages(0, 26)));
}

TEST_F(RegistryTest, ContainedRegionsAreReplacedAlsoWhenLeased) {
  idle(pages(2, 4));
  Region* leased = acquire(pages(6, 8));
  Region* large = idle(pages(0, 10));
  EXPECT_EQ(device.live(), 2u);
  EXPECT_TRUE(device.serves(leased->key, pages(6, 8), Access::all));
  EXPECT_EQ(hit(pages(6, 8)), large);
  domain->release(large);
  EXPECT_EQ(domain->release(leased), Released::idle_doomed);
  EXPECT_TRUE(domain->reaping_due());
  EXPECT_EQ(reap(), 1u);
  EXPECT_FALSE(domain->reaping_due());
  EXPECT_EQ(device.live(), 1u);
  EXPECT_TRUE(hits(pages(0, 10)));
}

TEST_F(RegistryTest, FailedMergeIsRememberedAndTheRequestAloneIsServed) {
  const auto refuses_unions = [](Range range, Access) {
    return range.bytes() > pages_bytes(10) ? ENOMEM : 0;
  };
  device.refuse = refuses_unions;
  idle(pages(0, 8));
  Region* second = idle(pages(6, 16));
  EXPECT_EQ(second->range(), pages(6, 16));
  // The first was replaced for the merge; register it again beside the second: no further attempt to merge.
  auto calls = device.calls();
  Region* first = idle(pages(0, 8));
  EXPECT_EQ(first->range(), pages(0, 8));
  EXPECT_EQ(device.calls(), calls + 1);
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_TRUE(hits(pages(6, 16)));
  change(pages(7, 8));
  EXPECT_FALSE(hits(pages(0, 8)));
  EXPECT_FALSE(hits(pages(6, 16)));
  EXPECT_EQ(reap(), 2u);
}

TEST_F(RegistryTest, DeviceCapOnARegionLimitsMerges) {
  device.limits.max_region_bytes = pages_bytes(10) + 1;
  limit(UINT64_MAX);  // opened anew on it
  EXPECT_EQ(domain->most_in_a_region(), pages_bytes(10));
  idle(pages(0, 8));
  EXPECT_EQ(idle(pages(6, 14))->range(), pages(6, 14));
  auto large = ticket(pages(100, 111));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_EQ(large.result().error.code, EFBIG);
  EXPECT_NE(std::string(large.result().error.message).find(std::to_string(pages_bytes(10) / 1024) + ".0 KiB"),
            std::string::npos);
  EXPECT_EQ(device.live(), 2u);
}

// ---- memory of larger pages ----

/// Hugepages of eight pages.
class LargePagesTest : public RegistryTest {
 protected:
  static Range huge(std::size_t begin, std::size_t end) { return pages(8 * begin, 8 * end); }
  Acquisition in_huge(Range range, Access access = Access::read) {
    auto made = ticket(range, access);
    made.request().large = in_large_pages(range, pages_bytes(8));
    return made;
  }
  Region* lease(Range range, Access access = Access::read) {
    auto miss = in_huge(range, access);
    EXPECT_EQ(run(miss), Step::leased) << miss.result().error.message;
    return miss.result().region;
  }
  Region* idle_in_huge(Range range, Access access = Access::read) {
    Region* const region = lease(range, access);
    if (region) domain->release(region);
    return region;
  }
  void give_peers_keys() {
    device.remote = true;
    domain->device_changed();
  }
};

TEST_F(LargePagesTest, OneRegistrationServesTheHugepage) {
  Region* const region = idle_in_huge(pages(3, 4));
  EXPECT_EQ(region->range(), huge(0, 1));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(8));
  EXPECT_TRUE(device.serves(region->key, huge(0, 1), Access::all));
  for (std::size_t page = 0; page < 8; ++page) EXPECT_TRUE(hits(pages(page, page + 1)));
  EXPECT_FALSE(hits(pages(8, 9)));
  EXPECT_EQ(device.calls(), 1u);
}

TEST_F(LargePagesTest, NeighboursThatShareAHugepageStayApart) {
  EXPECT_EQ(idle_in_huge(pages(2, 18))->range(), huge(0, 3));
  EXPECT_EQ(idle_in_huge(pages(19, 30))->range(), huge(2, 4));
  EXPECT_EQ(domain->registered_bytes(), 4 * pages_bytes(8));
  EXPECT_EQ(device.live(), 2u);
  EXPECT_EQ(idle_in_huge(pages(12, 28))->range(), huge(0, 4)) << "it overlaps both by more";
  EXPECT_EQ(device.live(), 1u);
}

TEST_F(LargePagesTest, ALimitBelowTheHugepageLeavesThePages) {
  limit(pages_bytes(6));
  EXPECT_EQ(idle_in_huge(pages(1, 3))->range(), pages(1, 3));
  EXPECT_EQ(idle_in_huge(pages(5, 7))->range(), pages(5, 7)) << "tried again, and again without room";
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(4));
}

TEST_F(LargePagesTest, IdleRegionsMakeRoomForAHugepage) {
  limit(pages_bytes(10));
  idle(pages(100, 105));
  EXPECT_EQ(idle_in_huge(pages(0, 1))->range(), huge(0, 1));
  EXPECT_FALSE(hits(pages(100, 105)));
  Region* const used = lease(pages(1, 2));
  EXPECT_EQ(idle_in_huge(pages(8, 9))->range(), pages(8, 9)) << "the other hugepage is in use";
  domain->release(used);
  EXPECT_EQ(idle_in_huge(pages(10, 11))->range(), pages(10, 11));
  EXPECT_TRUE(hits(pages(8, 9))) << "it went, though there was no room for the hugepage";
  change(huge(0, 1));
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(idle_in_huge(pages(12, 13))->range(), huge(1, 2)) << "there is room now";
}

TEST_F(LargePagesTest, DeviceCapBelowTheHugepageLeavesThePages) {
  device.limits.max_region_bytes = pages_bytes(7);
  limit(UINT64_MAX);
  EXPECT_EQ(idle_in_huge(pages(1, 3))->range(), pages(1, 3));
  auto too_large = in_huge(pages(0, 8));
  EXPECT_EQ(run(too_large), Step::refused);
  EXPECT_EQ(too_large.result().error.code, EFBIG);
}

TEST_F(LargePagesTest, ARefusedHugepageIsRememberedAndThePagesAreServed) {
  device.refuse = [](Range range, Access) { return range.bytes() >= pages_bytes(8) ? ENOMEM : 0; };
  EXPECT_EQ(idle_in_huge(pages(1, 3))->range(), pages(1, 3));
  EXPECT_EQ(device.calls(), 2u);
  EXPECT_EQ(idle_in_huge(pages(5, 7))->range(), pages(5, 7));
  EXPECT_EQ(device.calls(), 3u) << "it was tried again";
  EXPECT_EQ(idle_in_huge(pages(9, 10))->range(), pages(9, 10));
  EXPECT_EQ(device.calls(), 5u) << "another hugepage is tried";
}

TEST_F(LargePagesTest, AFailedMergeLeavesTheHugepage) {
  idle_in_huge(pages(0, 12));
  device.refuse = [](Range range, Access) { return range.bytes() > pages_bytes(16) ? ENOMEM : 0; };
  EXPECT_EQ(idle_in_huge(pages(7, 17))->range(), pages(7, 17)) << "three hugepages are refused, too";
  EXPECT_EQ(idle_in_huge(pages(41, 42))->range(), huge(5, 6));
  device.refuse = [](Range, Access) { return 0; };
}

TEST_F(LargePagesTest, RegionsWithinAreReplaced) {
  Region* const leased = acquire(pages(1, 2));
  idle(pages(4, 5));
  Region* const region = idle_in_huge(pages(6, 7));
  EXPECT_EQ(region->range(), huge(0, 1));
  EXPECT_EQ(hit(pages(1, 2)), region);
  domain->release(region);
  EXPECT_EQ(domain->release(leased), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(device.live(), 1u);
}

TEST_F(LargePagesTest, AnEventInAPartDoomsTheWhole) {
  Region* const region = lease(pages(0, 1));
  change(pages(7, 8));
  EXPECT_FALSE(hits(pages(0, 1)));
  EXPECT_EQ(domain->release(region), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
  brackets.open(pages(7, 8));
  EXPECT_EQ(idle_in_huge(pages(0, 1))->range(), pages(0, 1)) << "the rest is changing";
  brackets.close(pages(7, 8));
}

TEST_F(LargePagesTest, TheHelperRegistersAheadAsLarge) {
  auto ahead = in_huge(pages(2, 3));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::leased);
  EXPECT_EQ(ahead.result().region->range(), huge(0, 1));
  EXPECT_TRUE(hits(pages(7, 8)));
}

TEST_F(LargePagesTest, MemoryOfAnOwnerStaysAsItIs) {
  int owner = 0;
  auto segment = ticket(pages(4, 8));
  segment.request().owner = &owner;
  ASSERT_EQ(run(segment), Step::leased);
  EXPECT_EQ(idle_in_huge(pages(0, 1))->range(), pages(0, 1));
  const RegionRef ref{segment.result().region, segment.result().region->generation()};
  domain->end_permanence(ref);
  domain->release(segment.result().region);
}

TEST_F(LargePagesTest, AKeyForPeersCoversTheHugepage) {
  give_peers_keys();
  Region* const region = idle_in_huge(pages(1, 2), Access::remote_read);
  EXPECT_EQ(region->range(), huge(0, 1));
  EXPECT_EQ(region->access.load(), Access::remote_read);
  EXPECT_TRUE(hits(pages(5, 6), Access::remote_read));
}

TEST_F(LargePagesTest, RequestsOfUnequalRightsComeToRest) {
  give_peers_keys();
  const auto use_both = [&] {
    for (const auto& [range, access] : {std::pair{pages(0, 1), Access::read}, {pages(6, 7), Access::write}})
      if (!hits(range, access)) idle_in_huge(range, access);
  };
  use_both();
  use_both();
  const auto calls = device.calls();
  for (int i = 0; i < 5; ++i) use_both();
  EXPECT_EQ(device.calls(), calls) << "they replace each other";
}

TEST_F(LargePagesTest, NothingLeaksWhereverTheDeviceFails) {
  for (std::size_t failing = 0; failing < 12; ++failing) {
    std::size_t n = 0;
    device.refuse = [&](Range, Access) { return n++ % 12 == failing ? ENOMEM : 0; };
    for (const Range range : {pages(1, 3), pages(6, 12), pages(20, 21), pages(2, 22)}) {
      auto miss = in_huge(range);
      if (run(miss) == Step::leased) domain->release(miss.result().region);
    }
    retire_all(*domain, Actor::helper);
    EXPECT_EQ(device.live(), 0u);
    EXPECT_EQ(domain->registered_bytes(), 0u);
    EXPECT_EQ(budget->bytes(), 0u);
  }
}

// ---- limits ----

TEST_F(RegistryTest, CapsOfTheDeviceBoundItsDomain) {
  device.limits.max_bytes = pages_bytes(10);
  device.limits.max_regions = 3;
  limit(UINT64_MAX);
  expected(pages(0, 4), 1, 1000);
  expected(pages(10, 14), 2, 3000);
  expected(pages(20, 22), 3, 2000);
  idle(pages(30, 31), 4);  // a fourth region
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(10, 14))) << "the victim is the one used farthest in the future";
  EXPECT_TRUE(hits(pages(20, 22)));
  EXPECT_LE(device.live(), 3u);

  // All in use: refused before the device is asked, with its name and caps.
  std::vector<Region*> out;
  for (std::size_t at : {0, 20, 30}) out.push_back(acquire(pages(at, at + 1)));
  const std::size_t calls = device.calls();
  auto more = ticket(pages(40, 41));
  EXPECT_EQ(run(more), Step::refused);
  EXPECT_EQ(more.result().error.code, ENOMEM);
  EXPECT_FALSE(more.result().over_limit);
  EXPECT_NE(std::string(more.result().error.message).find("device fake registers at most"), std::string::npos)
      << more.result().error.message;
  EXPECT_EQ(device.calls(), calls);
  for (Region* region : out) domain->release(region);
  auto too_large = ticket(pages(100, 111));
  EXPECT_EQ(run(too_large), Step::refused);
  EXPECT_TRUE(hits(pages(0, 4))) << "for which nothing is let go";
}

/// Two domains that share a budget.
class TwoDomains : public RegistryTest {
 protected:
  void open(std::uint64_t bytes, std::uint64_t regions = UINT64_MAX) {
    limit(bytes, regions);
    other_ = std::make_unique<Domain>(other_device, *budget, brackets, clock, nullptr);
  }
  void TearDown() override {
    retire_all(*other_, Actor::helper, [](auto&&...) {});
    EXPECT_EQ(other_device.live(), 0u);
    RegistryTest::TearDown();
  }
  Acquisition ticket_of_other(Range range) { return {*other_, {.pages = range}}; }
  void idle_in_other(Range range) {
    auto miss = ticket_of_other(range);
    ASSERT_EQ(run(miss), Step::leased);
    other_->release(miss.result().region);
  }

  test::FakeDevice other_device;
  std::unique_ptr<Domain> other_;
};

TEST_F(TwoDomains, CapsOfOneDeviceDoNotBoundAnother) {
  device.limits.max_regions = 2;
  device.limits.max_bytes = pages_bytes(4);
  other_device.limits.max_regions = 6;
  open(UINT64_MAX);
  for (std::size_t i = 0; i < 10; ++i) {
    idle(pages(10 * i, 10 * i + 1));
    idle_in_other(pages(10 * i, 10 * i + 8));
    EXPECT_EQ(device.live(), std::min<std::size_t>(i + 1, 2));
    EXPECT_EQ(other_device.live(), std::min<std::size_t>(i + 1, 6));
  }
  EXPECT_EQ(budget->regions(), 8u);
  EXPECT_EQ(budget->bytes(), pages_bytes(2 + 6 * 8));
}

TEST_F(TwoDomains, ALimitOfTheProcessIsOfTheirSum) {
  open(pages_bytes(12), 3);
  idle(pages(0, 8));
  idle_in_other(pages(0, 4));
  // More fits in neither: each can evict only its own regions, and the other's count.
  auto large = ticket_of_other(pages(100, 109));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_TRUE(large.result().over_limit);
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_EQ(other_device.live(), 1u);

  // Another domain makes room when it is asked.
  const auto retire = [&](std::vector<Region*> victims) {
    for (Region* region : victims) retire_claimed(*domain, region, Actor::helper);
  };
  retire(domain->begin_shrink(pages_bytes(12) - large.request().pages.bytes()));
  EXPECT_FALSE(hits(pages(0, 8)));
  EXPECT_EQ(run(large), Step::leased);
  other_->release(large.result().region);
  EXPECT_LE(budget->bytes(), pages_bytes(12));

  // It makes room by number, too.
  for (std::size_t at : {0, 1}) idle(pages(200 + 2 * at, 201 + 2 * at));
  EXPECT_EQ(budget->regions(), 3u);
  retire(domain->begin_shrink(UINT64_MAX, 1));
  EXPECT_EQ(budget->regions(), 1u) << "as far as the domain has idle ones";
}

TEST_F(RegistryTest, VictimIsTheOneUsedFarthestInTheFuture) {
  limit(pages_bytes(12));
  expected(pages(0, 4), 1, 1000);
  expected(pages(10, 14), 2, 3000);
  expected(pages(20, 24), 3, 2000);
  idle(pages(30, 34), 4);
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(10, 14)));
  EXPECT_TRUE(hits(pages(20, 24)));
}

TEST_F(RegistryTest, UnpredictedRegionsGoFirstAndInOrderOfUse) {
  limit(pages_bytes(12));
  idle(pages(0, 4), 30);
  idle(pages(10, 14), 20);
  expected(pages(20, 24), 10, 1'000'000);
  idle(pages(30, 34), 40);
  EXPECT_FALSE(hits(pages(10, 14)));
  EXPECT_TRUE(hits(pages(0, 4)));
  idle(pages(40, 48), 50);
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(30, 34)));
  EXPECT_TRUE(hits(pages(20, 24)));
  EXPECT_LE(device.peak(), pages_bytes(12));
}

TEST_F(RegistryTest, RequestAboveTheLimitIsRefusedAndEvictsNothing) {
  limit(pages_bytes(10));
  idle(pages(0, 4));
  auto large = ticket(pages(100, 111));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_EQ(large.result().error.code, ENOMEM);
  EXPECT_NE(std::string(large.result().error.message).find(std::to_string(pages_bytes(10) / 1024) + " KiB"),
            std::string::npos);
  EXPECT_NE(std::string(large.result().error.message).find("--limit"), std::string::npos);
  EXPECT_TRUE(hits(pages(0, 4)));
}

// The bytes of overlapping regions are not freed twice.
TEST_F(RegistryTest, HopelessRequestEvictsNothingBesideOverlappingRegions) {
  limit(pages_bytes(20));
  device.refuse = [](Range range, Access) { return range.bytes() > pages_bytes(8) ? ENOMEM : 0; };
  idle(pages(0, 8));
  idle(pages(2, 10));
  idle(pages(0, 8));
  EXPECT_EQ(device.live(), 2u);
  Region* leased = acquire(pages(50, 55));
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(15));
  auto large = ticket(pages(100, 118));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_TRUE(hits(pages(0, 8)));
  EXPECT_TRUE(hits(pages(2, 10)));
  domain->release(leased);
}

TEST_F(RegistryTest, LeasedRegionsAreNeverVictims) {
  limit(pages_bytes(8));
  Region* leased = acquire(pages(0, 6));
  auto more = ticket(pages(10, 14));
  EXPECT_EQ(run(more), Step::refused);
  EXPECT_TRUE(device.serves(leased->key, pages(0, 6), Access::all));
  domain->release(leased);
  EXPECT_NE(idle(pages(10, 14)), nullptr);
  EXPECT_FALSE(hits(pages(0, 6)));
}

TEST_F(RegistryTest, MergeThatDoesNotFitYieldsToTheRequestAlone) {
  limit(pages_bytes(10));
  Region* leased = acquire(pages(0, 8));
  Region* alone = idle(pages(6, 10));
  ASSERT_NE(alone, nullptr);
  domain->release(leased);
  auto other = acquire(pages(5, 11));
  ASSERT_NE(other, nullptr);
  EXPECT_LE(device.peak(), pages_bytes(10));
  domain->release(other);
}

TEST_F(RegistryTest, RegionCountIsLimitedToo) {
  limit(UINT64_MAX, 2);
  idle(pages(0, 1), 1);
  idle(pages(10, 11), 2);
  idle(pages(20, 21), 3);
  EXPECT_EQ(device.live(), 2u);
  EXPECT_FALSE(hits(pages(0, 1)));
  Region* a = acquire(pages(10, 11));
  Region* b = acquire(pages(20, 21));
  auto third = ticket(pages(30, 31));
  EXPECT_EQ(run(third), Step::refused);
  domain->release(a);
  domain->release(b);
}

TEST_F(RegistryTest, HelperEvictsNothing) {
  limit(pages_bytes(4));
  idle(pages(0, 4));
  auto ahead = ticket(pages(10, 14));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::refused);
  EXPECT_TRUE(hits(pages(0, 4)));
}

TEST_F(RegistryTest, HelperRegistersAheadWithoutALease) {
  auto ahead = ticket(pages(0, 4));
  ahead.request().lease = false;
  EXPECT_EQ(run(ahead), Step::leased);
  EXPECT_TRUE(ahead.result().registered_here);
  EXPECT_EQ(ahead.result().region->word.load().leases(), 0u);
  EXPECT_TRUE(hits(pages(0, 4)));
  auto again = ticket(pages(1, 2));
  again.request().lease = false;
  EXPECT_EQ(run(again), Step::leased);
  EXPECT_FALSE(again.result().registered_here);
  EXPECT_EQ(device.calls(), 1u);
}

/// A registration ahead under way, expected to take 1 ms from time 0.
class RegistrationAheadTest : public RegistryTest {
 protected:
  static constexpr Duration ms = kMillisecond;
  Acquisition ahead = ticket(pages(0, 4)), miss = ticket(pages(0, 4));

  void SetUp() override {
    RegistryTest::SetUp();
    begin_ahead();
  }
  void begin_ahead() {
    ahead.request().lease = false;
    ahead.request().expected = ms;
    ASSERT_EQ(ahead.next(clock.now()), Step::register_);
  }
  /// The device's answer reaches the helper.
  Step end_ahead(int code = 0) {
    device.refuse = [code](Range, Access) { return code; };
    Step step =
        ahead.registered(device.register_range(ahead.range(), ahead.rights(), Actor::helper), clock.now());
    device.refuse = [](Range, Access) { return 0; };
    if (step != Step::deregister) return step;
    for (Region* victim : ahead.victims()) retire_claimed(*domain, victim, Actor::helper);
    return ahead.next(clock.now());
  }
  /// The waiting thread after its patience, up to its device call.
  void overtake() {
    ASSERT_EQ(miss.next(clock.now()), Step::await_region);
    EXPECT_GE(miss.attempt().overdue, 2 * ms);
    EXPECT_LE(miss.attempt().overdue, 3 * ms);
    clock.set(miss.attempt().overdue);
    domain->overtake(miss.attempt());
    ASSERT_EQ(miss.next(clock.now()), Step::register_);
  }
  void commit_miss() {
    ASSERT_EQ(
        miss.registered(device.register_range(miss.range(), miss.rights(), Actor::application), clock.now()),
        Step::leased);
    EXPECT_TRUE(device.serves(miss.result().region->key, pages(0, 4), Access::read));
  }
};

TEST_F(RegistrationAheadTest, IsOvertakenAndComesLast) {
  overtake();
  commit_miss();
  EXPECT_EQ(end_ahead(), Step::leased);
  EXPECT_FALSE(ahead.result().registered_here);
  EXPECT_EQ(ahead.result().region, miss.result().region) << "the thread's serves";
  EXPECT_EQ(device.live(), 1u) << "the late one is deregistered";
  EXPECT_EQ(domain->region_count(), 1u);
  domain->release(miss.result().region);
}

TEST_F(RegistrationAheadTest, IsOvertakenAndComesFirst) {
  overtake();
  EXPECT_EQ(end_ahead(), Step::busy) << "for the thread's; the helper does not wait";
  EXPECT_EQ(device.live(), 0u);
  commit_miss();
  EXPECT_EQ(device.live(), 1u);
  domain->release(miss.result().region);
}

TEST_F(RegistrationAheadTest, IsOvertakenAndRefused) {
  overtake();
  EXPECT_EQ(end_ahead(ENOMEM), Step::refused);
  commit_miss();
  domain->release(miss.result().region);
}

TEST_F(RegistrationAheadTest, OneThreadOvertakesForAll) {
  auto other = ticket(pages(1, 3));
  ASSERT_EQ(other.next(clock.now()), Step::await_region);
  overtake();
  domain->overtake(other.attempt());
  ASSERT_EQ(other.next(clock.now()), Step::await_region) << "for the first thread's";
  EXPECT_EQ(other.attempt().region, miss.attempt().region);
  EXPECT_EQ(other.attempt().overdue, kNever);
  commit_miss();
  EXPECT_EQ(other.next(clock.now()), Step::leased);
  EXPECT_EQ(other.result().region, miss.result().region);
  EXPECT_EQ(end_ahead(), Step::leased);
  EXPECT_EQ(device.calls(), 2u);
  domain->release(other.result().region);
  domain->release(miss.result().region);
}

TEST_F(RegistrationAheadTest, ThatEndedMeanwhileIsNotOvertaken) {
  ASSERT_EQ(miss.next(clock.now()), Step::await_region);
  EXPECT_EQ(end_ahead(), Step::leased);
  domain->overtake(miss.attempt());
  EXPECT_EQ(miss.next(clock.now()), Step::leased);
  EXPECT_EQ(miss.result().region, ahead.result().region);
  EXPECT_EQ(device.calls(), 1u);
  domain->release(miss.result().region);
}

TEST_F(RegistrationAheadTest, IsWaitedForWhereALimitHasNoRoomForTwo) {
  EXPECT_EQ(end_ahead(), Step::leased);
  retire_all(*domain, Actor::helper);
  for (const auto& [bytes, regions] :
       {std::pair{UINT64_MAX, std::uint64_t{1}}, std::pair{pages_bytes(7), UINT64_MAX}}) {
    limit(bytes, regions);
    ahead = ticket(pages(0, 4));
    miss = ticket(pages(0, 4));
    begin_ahead();
    ASSERT_EQ(miss.next(clock.now()), Step::await_region);
    domain->overtake(miss.attempt());
    ASSERT_EQ(miss.next(clock.now()), Step::await_region);
    EXPECT_EQ(miss.attempt().overdue, kNever);
    EXPECT_EQ(end_ahead(), Step::leased);
    EXPECT_EQ(miss.next(clock.now()), Step::leased);
    domain->release(miss.result().region);
    retire_all(*domain, Actor::helper);
  }
}

TEST_F(RegistrationAheadTest, MemoryThatChangesAfterwardsIsHeldByNeither) {
  overtake();
  change(pages(0, 4));
  EXPECT_EQ(
      miss.registered(device.register_range(miss.range(), miss.rights(), Actor::application), clock.now()),
      Step::deregister);
  for (Region* victim : miss.victims()) retire_claimed(*domain, victim, Actor::application);
  EXPECT_EQ(end_ahead(), Step::refused) << "it has changed since its use was predicted";
  EXPECT_EQ(device.live(), 0u);
}

TEST_F(RegistryTest, TrimKeepsTheMostRecentlyUsed) {
  for (std::size_t i = 0; i < 8; ++i) idle(pages(10 * i, 10 * i + 2), 100 - i);
  domain->choose_least_recently_used();
  // All five are claimed before the first is gone: departing bytes are not claimed twice.
  std::vector<Region*> victims;
  while (Region* region = domain->begin_trim(pages_bytes(6))) victims.push_back(region);
  EXPECT_EQ(victims.size(), 5u);
  for (Region* region : victims) retire_claimed(*domain, region, Actor::helper);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(hits(pages(10 * i, 10 * i + 2)), i < 3);
  EXPECT_EQ(domain->begin_trim(pages_bytes(6)), nullptr);
}

// The next registration may count from before a later look at the clock.
TEST_F(RegistryTest, ARetirementEndsWhileItsBytesStillCount) {
  class Watching final : public Clock {
   public:
    explicit Watching(const Budget& budget) : budget_(budget) {}
    Time now() override { return static_cast<Time>(budget_.bytes()); }
    Ticks ticks() override { return budget_.bytes(); }

   private:
    const Budget& budget_;
  } watching(*budget);
  Domain watched(device, *budget, brackets, watching, nullptr);
  Acquisition wanted(watched, {.pages = pages(1, 3)});
  DeviceCall made;
  const auto note = [&](const DeviceCall& call) { made = call; };
  ASSERT_EQ(run_blocking(wanted, Actor::application, note), Step::leased);
  EXPECT_EQ(made.begin, pages_bytes(2));
  watched.release(wanted.result().region);
  retire_all(watched, Actor::helper, note);
  EXPECT_EQ(made.end, pages_bytes(2));
  EXPECT_EQ(budget->bytes(), 0u);
}

// ---- failures of the device ----

TEST_F(RegistryTest, OnlyWhatIsRegisteredIsCounted) {
  device.refuse = [](Range range, Access) { return range.bytes() > pages_bytes(4) ? EFAULT : 0; };
  class Peak final : public RegisteredListener {
   public:
    void registered_changed(Time now, Time since, std::int64_t change, int) override {
      bytes += change;
      most = std::max(most, bytes);
      registering += now - since;
    }
    std::int64_t bytes = 0, most = 0;
    Duration registering = 0;
  } peak;
  Domain counted(device, *budget, brackets, clock, &peak);
  const auto run = [&](Range range) {
    Acquisition ticket(counted, {.pages = range});
    const Step done = run_blocking(ticket, Actor::application);
    return std::pair(done, ticket.result().region);
  };
  EXPECT_EQ(run(pages(0, 1000)).first, Step::refused);
  EXPECT_EQ(peak.most, 0) << "it was asked for and never registered";
  EXPECT_EQ(counted.registered_bytes(), 0u);
  const auto slow = device.refuse;
  device.refuse = [&](Range range, Access access) {
    clock.advance(kMillisecond);
    EXPECT_EQ(counted.registered_bytes(), 0u);
    return slow(range, access);
  };
  const auto [step, region] = run(pages(0, 2));
  ASSERT_EQ(step, Step::leased);
  EXPECT_EQ(peak.most, static_cast<std::int64_t>(pages_bytes(2)));
  EXPECT_EQ(peak.registering, kMillisecond) << "it counts from the begin of its device call";
  counted.release(region);
  retire_all(counted, Actor::helper, [](auto&&...) {});
  EXPECT_EQ(peak.bytes, 0);
}

TEST_F(RegistryTest, AFailedDeregistrationStaysCountedAndIsTriedAgain) {
  int refusals = 0;
  device.refuse_deregistration = [&](RegistrationKey) { return refusals-- > 0 ? EBUSY : 0; };
  domain->release(acquire(pages(0, 2)));
  domain->release(acquire(pages(4, 5)));
  refusals = 2;
  int failed = 0;
  retire_all(*domain, Actor::helper, [&](const DeviceCall& call) { failed += call.error.code == EBUSY; });
  EXPECT_EQ(failed, 2);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(3));
  EXPECT_EQ(witness->bytes(), static_cast<std::int64_t>(pages_bytes(3)));
  EXPECT_EQ(budget->bytes(), pages_bytes(3)) << "the limit counts what is held";
  EXPECT_EQ(domain->begin_reap(), nullptr) << "not at once";
  EXPECT_EQ(device.live(), 2u);

  // Registered anew meanwhile, as if the memory were free.
  domain->release(acquire(pages(0, 2)));
  clock.advance(kSecond);
  EXPECT_EQ(reap(), 2u);
  EXPECT_EQ(device.live(), 1u);
  EXPECT_EQ(budget->bytes(), pages_bytes(2));
  device.refuse_deregistration = [](RegistrationKey) { return 0; };
}

TEST_F(RegistryTest, WhatTheSystemRefusesIsNotAskedForEachTime) {
  // Another process of the user leaves room for 10 pages, later for 5, and at last for all.
  std::size_t room = 10;
  std::size_t refusals = 0, bounced = 0;
  device.refuse = [&](Range range, Access) {
    const bool fits = device.bytes() + range.bytes() <= pages_bytes(room);
    refusals += !fits;
    return fits ? 0 : ENOMEM;
  };
  const auto use = [&](int times) {
    for (int i = 0; i < times; ++i) {
      const auto at = static_cast<std::size_t>(i % 8) * 10;
      Region* const region = acquire(pages(at, at + 3));
      bounced += !region;
      if (region) domain->release(region);
      clock.advance(10 * kMicrosecond);
    }
  };
  use(1000);
  EXPECT_LE(refusals, 3u);
  EXPECT_EQ(device.bytes(), pages_bytes(9));
  refusals = 0;
  room = 5;  // pinned pages stay so
  use(1000);
  EXPECT_LE(refusals, 6u);
  EXPECT_LE(bounced, 2u);
  EXPECT_EQ(device.bytes(), pages_bytes(3));
  room = 100;
  clock.advance(2 * kSecond);
  use(1000);
  EXPECT_EQ(device.live(), 8u) << "all of it has room again";
}

TEST_F(RegistryTest, PressureOfTheDeviceIsRelievedOnce) {
  device.refuse = [this](Range range, Access) {
    return device.bytes() + range.bytes() > pages_bytes(10) ? ENOMEM : 0;
  };
  idle(pages(0, 4), 1);
  idle(pages(10, 14), 2);
  idle(pages(20, 24), 3);
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_TRUE(hits(pages(10, 14)));
  auto large = ticket(pages(100, 111));
  EXPECT_EQ(run(large), Step::refused);
  EXPECT_EQ(large.result().error.code, ENOMEM);
}

TEST_F(RegistryTest, NothingLeaksWhereverTheDeviceFails) {
  for (const int code : {ENOMEM, EFAULT, ENOSPC, EPERM}) {
    for (int k = 1; k <= 4; ++k) {
      limit(pages_bytes(40));
      int calls = 0;
      device.refuse = [&](Range, Access) { return ++calls % k == 0 ? code : 0; };
      std::vector<Region*> leases;
      for (std::size_t i = 0; i < 60; ++i) {
        const std::size_t begin = i * 7 % 50;
        if (Region* region = acquire(pages(begin, begin + 1 + i % 9))) leases.push_back(region);
        EXPECT_EQ(device.bytes(), domain->registered_bytes());
        if (i % 5 == 4) {
          for (Region* region : leases) domain->release(region);
          leases.clear();
        }
      }
      for (Region* region : leases) domain->release(region);
      EXPECT_EQ(device.live(), domain->region_count());
      EXPECT_EQ(domain->registered_bytes(), static_cast<std::size_t>(witness->bytes()));
      TearDown();
    }
  }
}

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
    EXPECT_TRUE(domain->reaping_due());
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

// ---- retention's helpers ----

TEST_F(RegistryTest, IdleRegionsAreListedInOrder) {
  idle(pages(20, 22));
  idle(pages(0, 2));
  Region* leased = acquire(pages(10, 12));
  const auto refs = domain->idle_regions();
  ASSERT_EQ(refs.size(), 2u);
  EXPECT_EQ(refs[0].region->range(), pages(0, 2));
  EXPECT_EQ(refs[1].region->range(), pages(20, 22));
  EXPECT_EQ(domain->idle_regions(1).size(), 1u);
  EXPECT_TRUE(domain->missing(pages(10, 12)) == 0);
  EXPECT_FALSE(domain->missing(pages(10, 13)) == 0);
  domain->release(leased);
}

TEST_F(RegistryTest, ReferencesDoNotSurviveRecycling) {
  Region* region = idle(pages(0, 4));
  const RegionRef ref{region, region->generation()};
  Region* claimed = domain->begin_retire(ref);
  ASSERT_EQ(claimed, region);
  EXPECT_FALSE(hits(pages(0, 4)));
  EXPECT_EQ(domain->begin_retire(ref), nullptr);
  retire_claimed(*domain, claimed, Actor::helper);
  EXPECT_EQ(idle(pages(50, 54)), region);  // the same slot
  EXPECT_FALSE(ref.current());
  EXPECT_EQ(domain->begin_retire(ref), nullptr);
  EXPECT_TRUE(hits(pages(50, 54)));
  EXPECT_FALSE(hits(pages(0, 4)));  // although the thread remembers the slot for it
}

TEST_F(RegistryTest, LeasedRegionsAreNotRetired) {
  Region* region = acquire(pages(0, 4));
  EXPECT_EQ(domain->begin_retire({region, region->generation()}), nullptr);
  retire_all(*domain, Actor::helper, [](auto&&...) {});
  EXPECT_EQ(device.live(), 1u);
  domain->release(region);
}

// ---- regions held by peers ----

TEST_F(RegistryTest, HeldRegionsAreNoVictimsAndAreNotRetired) {
  limit(pages_bytes(8));
  Region* held = idle(pages(0, 4));
  const RegionRef ref{held, held->generation()};
  ASSERT_TRUE(domain->begin_hold(ref));
  idle(pages(10, 14));
  EXPECT_EQ(domain->idle_regions().size(), 1u);
  EXPECT_EQ(domain->begin_retire(ref), nullptr);
  // The other one goes for each of these; where that is too little, both stay.
  idle(pages(20, 24));
  EXPECT_TRUE(hits(pages(0, 4)));
  EXPECT_FALSE(hits(pages(10, 14)));
  EXPECT_EQ(acquire(pages(30, 38)), nullptr);
  EXPECT_TRUE(hits(pages(20, 24)));
  for (Region* region : domain->begin_shrink(0)) retire_claimed(*domain, region, Actor::helper);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(4));
  EXPECT_TRUE(hits(pages(0, 4)));

  EXPECT_EQ(domain->end_hold(held), Released::idle);
  EXPECT_EQ(domain->idle_regions().size(), 1u);
}

TEST_F(RegistryTest, ADoomedRegionStaysForItsHoldersWhichAreRecalledAtOnce) {
  Region* region = acquire(pages(0, 4));
  const RegionRef ref{region, region->generation()};
  ASSERT_TRUE(domain->begin_hold(ref));
  ASSERT_TRUE(domain->begin_hold(ref));
  idle(pages(10, 14));
  EXPECT_TRUE(domain->take_recalls().empty());
  change(pages(0, 20));

  const auto recalls = domain->take_recalls();
  ASSERT_EQ(recalls.size(), 1u) << "the idle one has no holders";
  EXPECT_EQ(recalls[0].region, region);
  EXPECT_TRUE(recalls[0].current());
  EXPECT_TRUE(domain->take_recalls().empty());
  EXPECT_FALSE(domain->begin_hold(ref));
  EXPECT_FALSE(hits(pages(0, 4)));

  EXPECT_EQ(domain->end_hold(region), Released::in_use);
  EXPECT_EQ(domain->release(region), Released::in_use);
  EXPECT_EQ(reap(), 1u) << "the idle one";
  EXPECT_TRUE(device.serves(region->key, pages(0, 4), Access::all));
  EXPECT_EQ(domain->end_hold(region), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
  EXPECT_FALSE(domain->begin_hold(ref));
}

TEST_F(RegistryTest, HoldersOfAReplacedRegionAreRecalled) {
  Region* small = idle(pages(2, 4));
  ASSERT_TRUE(domain->begin_hold({small, small->generation()}));
  idle(pages(0, 8));
  const auto recalls = domain->take_recalls();
  ASSERT_EQ(recalls.size(), 1u);
  EXPECT_EQ(recalls[0].region, small);
  EXPECT_EQ(domain->end_hold(small), Released::idle_doomed);
  reap();
}

TEST_F(RegistryTest, RecallsOfWhatIsLetGoSinceAreLeftOut) {
  Region* region = acquire(pages(0, 4));
  change(pages(0, 4));
  domain->release(region);
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(acquire(pages(6, 8)), region) << "the slot is used again";
  EXPECT_TRUE(domain->take_recalls().empty());
  change(pages(6, 8));
  EXPECT_EQ(domain->take_recalls().size(), 1u);
  domain->release(region);
  reap();
}

// ---- permanent regions ----

class PermanentRegion : public RegistryTest {
 protected:
  const int arena_ = 0, other_ = 0;
  RegionRef permanent_;

  /// Pages 10 to 20, as an arena registers them.
  void begin() {
    auto permanent = ticket(pages(10, 20));
    permanent.request().lease = false;
    permanent.request().owner = &arena_;
    ASSERT_EQ(run(permanent), Step::leased);
    ASSERT_EQ(permanent.result().region->range(), pages(10, 20));
    permanent_ = {permanent.result().region, permanent.result().region->generation()};
  }
  void TearDown() override {
    domain->end_permanence(permanent_);
    RegistryTest::TearDown();
  }
};

TEST_F(PermanentRegion, LimitsAndRetentionLeaveItAlone) {
  limit(pages_bytes(16));
  domain->choose_least_recently_used();
  begin();
  idle(pages(30, 36));
  EXPECT_TRUE(domain->idle_regions().size() == 1 && domain->begin_retire(permanent_) == nullptr);
  EXPECT_EQ(acquire(pages(40, 50)), nullptr) << "no room beside it";
  while (Region* region = domain->begin_trim(pages_bytes(2)))
    retire_claimed(*domain, region, Actor::application);
  for (Region* region : domain->begin_shrink(0)) retire_claimed(*domain, region, Actor::helper);
  EXPECT_EQ(domain->registered_bytes(), pages_bytes(10)) << "it counts as what is registered";
  Region* served = hit(pages(12, 14), Access::write);
  EXPECT_EQ(served, permanent_.region);
  EXPECT_EQ(domain->release(served), Released::in_use) << "nothing for retention to decide";

  domain->end_permanence(permanent_);
  EXPECT_EQ(domain->idle_regions().size(), 1u);
  idle(pages(40, 50));
  EXPECT_FALSE(permanent_.current()) << "it went like any other";
}

TEST_F(PermanentRegion, OnlyEventsOfOthersDoomIt) {
  begin();
  EXPECT_EQ(domain->doom(pages(0, 15), &arena_), 0u);
  EXPECT_TRUE(hits(pages(12, 14)));
  idle(pages(2, 4));
  EXPECT_EQ(domain->doom(pages(0, 15), &arena_), pages_bytes(2)) << "its neighbour is nobody's";
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(domain->doom(pages(18, 22), &other_), pages_bytes(10));
  EXPECT_FALSE(hits(pages(12, 14)));
  EXPECT_EQ(reap(), 1u) << "its memory has gone";
  EXPECT_FALSE(permanent_.region->word.load().registered());
}

TEST_F(PermanentRegion, ItIsNeitherMergedNorReplaced) {
  begin();
  // An overlap at its edge becomes a region of its own.
  Region* beside = idle(pages(16, 24));
  EXPECT_EQ(beside->range(), pages(16, 24));
  auto around = ticket(pages(8, 22));
  EXPECT_EQ(run(around), Step::refused);
  EXPECT_EQ(around.result().error.code, EBUSY);
  EXPECT_TRUE(hits(pages(10, 20)));
  // Its owner's second try finds it.
  auto again = ticket(pages(10, 20));
  again.request().owner = &arena_;
  ASSERT_EQ(run(again), Step::leased);
  EXPECT_EQ(again.result().region, permanent_.region);
  domain->release(again.result().region);
  auto foreign = ticket(pages(12, 14));
  foreign.request().owner = &other_;
  EXPECT_EQ(run(foreign), Step::refused);
}

TEST_F(PermanentRegion, ItReplacesOrdinaryOnes) {
  Region* within = acquire(pages(12, 14));
  idle(pages(16, 18));
  begin();
  EXPECT_EQ(domain->region_count(), 2u) << "the one under lease, until its release";
  EXPECT_EQ(domain->release(within), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
}

TEST_F(RegistryTest, ARequestBeyondTheMostLeasesRegistersAnew) {
  Region* full = acquire(pages(0, 4));
  std::uint32_t leases = 1;
  for (const auto proof = full->word.load().proof(); full->word.count_in(proof);) ++leases;
  EXPECT_EQ(leases, RegionWord::kMostLeases);
  EXPECT_EQ(full->word.release(), Released::in_use) << "the one that was refused";
  Region* next = acquire(pages(0, 4));
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next, full);
  EXPECT_EQ(domain->release(next), Released::idle);
  for (; leases > 1; --leases) full->word.release();
  EXPECT_EQ(domain->release(full), Released::idle_doomed);
  EXPECT_EQ(reap(), 1u);
}

TEST_F(RegistryTest, ASlotWhoseGenerationsAreUsedUpIsNotUsedAgain) {
  Region* region = idle(pages(0, 1));
  const auto retire = [&] {
    retire_claimed(*domain, domain->begin_retire({region, region->generation()}), Actor::helper);
  };
  retire();
  while (region->generation() + 1 < RegionWord::kLastGeneration) {
    region->word.begin_registering(0);
    region->word.abandon(0);
    region->word.set_free();
  }
  EXPECT_EQ(idle(pages(0, 1)), region);
  EXPECT_EQ(region->generation(), RegionWord::kLastGeneration);
  retire();
  EXPECT_NE(idle(pages(0, 1)), region);
}

TEST_F(RegistryTest, DomainsShareTheBudget) {
  limit(pages_bytes(8));
  test::FakeDevice other_device;
  Domain other(other_device, *budget, brackets, clock, nullptr);
  Region* mine = acquire(pages(0, 6));
  Acquisition theirs(other, {.pages = pages(0, 6)});
  EXPECT_EQ(run(theirs), Step::refused);
  domain->release(mine);
  Acquisition small(other, {.pages = pages(0, 2)});
  EXPECT_EQ(run(small), Step::leased);
  EXPECT_EQ(budget->bytes(), pages_bytes(8));
  other.release(small.result().region);
  retire_all(other, Actor::helper, [](auto&&...) {});
  EXPECT_EQ(budget->bytes(), pages_bytes(6));
}

}  // namespace
}  // namespace pinion
