// Which registration serves a request, and which neighbours are merged.

#include <gtest/gtest.h>

#include <string>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

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
  EXPECT_EQ(reap(), 1u);
  EXPECT_EQ(reap(), 0u);
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

}  // namespace
}  // namespace pinion::domain_test
