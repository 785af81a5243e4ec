// Requests in memory of larger pages.

#include <gtest/gtest.h>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

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
  domain->doom(pages(4, 8));
  EXPECT_EQ(domain->release(segment.result().region), Released::idle_doomed);
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

}  // namespace
}  // namespace pinion::domain_test
