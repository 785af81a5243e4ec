// The machine of an acquire's steps, driven by hand in virtual time: what it asks for, and when it gives up.
#include "registry/acquisition.h"

#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <thread>

#include "support/registry_fixture.h"

namespace pinion {
namespace {

using test::pages;
using test::pages_bytes;
using Step = AcquireStep;

class AcquisitionTest : public test::RegistryTest {
 protected:
  static constexpr Time kStart = kSecond;

  /// The device's answer.
  Step registered(Acquisition& acquisition, Time now = kStart) {
    return acquisition.registered(
        device.register_range(acquisition.range(), acquisition.rights(), Actor::application), now);
  }
  void release(const Acquisition& acquisition) { domain->release(acquisition.result().region); }
  static void deregister(const Acquisition& acquisition) {
    for (Region* victim : acquisition.victims())
      retire_claimed(acquisition.victims_in(), victim, Actor::application);
  }
  /// Claims an idle region, as another thread does that deregisters it.
  Region* leaving(Range range) {
    Region* const region = idle(range);
    return domain->begin_retire({region, region->generation()});
  }
};

TEST_F(AcquisitionTest, AMissCallsTheDeviceOnce) {
  auto miss = ticket(pages(0, 4), Access::write);
  ASSERT_EQ(miss.next(kStart), Step::register_);
  EXPECT_EQ(miss.range(), pages(0, 4));
  EXPECT_EQ(miss.rights(), Access::all);
  EXPECT_EQ(miss.page_bytes(), 0u);
  ASSERT_EQ(registered(miss), Step::leased);
  EXPECT_TRUE(miss.result().registered_here);
  EXPECT_FALSE(miss.result().waited);
  release(miss);
}

TEST_F(AcquisitionTest, FewerRightsAreTriedAfterARefusal) {
  device.refuse = [](Range, Access access) { return access == Access::all ? EFAULT : 0; };
  auto miss = ticket(pages(0, 4));
  ASSERT_EQ(miss.next(kStart), Step::register_);
  ASSERT_EQ(registered(miss), Step::register_);
  EXPECT_EQ(miss.rights(), Access::read);
  ASSERT_EQ(registered(miss), Step::leased);
  release(miss);
}

TEST_F(AcquisitionTest, TheSecondAwaitsTheFirst) {
  auto first = ticket(pages(0, 4)), second = ticket(pages(1, 2)), ahead = ticket(pages(2, 3));
  ahead.request().lease = false;
  ASSERT_EQ(first.next(kStart), Step::register_);
  ASSERT_EQ(second.next(kStart), Step::await_region);
  EXPECT_EQ(ahead.next(kStart), Step::busy) << "a request without lease waited";
  EXPECT_FALSE(second.awaited().over());
  EXPECT_EQ(second.awaited().until, kNever);
  ASSERT_EQ(registered(first), Step::leased);
  EXPECT_TRUE(second.awaited().over());
  ASSERT_EQ(second.next(kStart), Step::leased);
  EXPECT_EQ(second.result().region, first.result().region);
  EXPECT_TRUE(second.result().waited);
  EXPECT_FALSE(second.result().registered_here);
  EXPECT_FALSE(ahead.result().waited);
  release(first);
  release(second);
}

TEST_F(AcquisitionTest, ARegistrationAheadThatIsOverdueIsOvertaken) {
  auto ahead = ticket(pages(0, 4)), miss = ticket(pages(0, 4));
  ahead.request().lease = false;
  ahead.request().expected = kMillisecond;
  ASSERT_EQ(ahead.next(kStart), Step::register_);
  ASSERT_EQ(miss.next(kStart), Step::await_region);
  clock.set(miss.awaited().until - 1);
  ASSERT_EQ(miss.next(kStart), Step::await_region) << "it was not late yet";
  clock.set(miss.awaited().until);
  ASSERT_EQ(miss.next(kStart), Step::register_);
  ASSERT_EQ(registered(miss), Step::leased);
  ASSERT_EQ(registered(ahead), Step::deregister);
  deregister(ahead);
  EXPECT_EQ(device.live(), 1u);
  release(miss);
}

TEST_F(AcquisitionTest, ARegionOnItsWayOutIsAwaitedForItsRoom) {
  limit(pages_bytes(6));
  Region* const gone = leaving(pages(0, 4));
  auto miss = ticket(pages(10, 14));
  ASSERT_EQ(miss.next(kStart), Step::await_departure);
  EXPECT_EQ(miss.awaited().until, kStart + kRoomPatience);
  EXPECT_FALSE(miss.awaited().over());
  ASSERT_EQ(miss.next(kStart + kRoomPatience - 1), Step::await_departure);
  EXPECT_EQ(miss.awaited().until, kStart + kRoomPatience) << "its patience began anew";
  retire_claimed(*domain, gone, Actor::helper);
  EXPECT_TRUE(miss.awaited().over());
  ASSERT_EQ(miss.next(kStart + kRoomPatience - 1), Step::register_);
  ASSERT_EQ(registered(miss), Step::leased);
  release(miss);
}

TEST_F(AcquisitionTest, PatienceForRoomEnds) {
  limit(pages_bytes(6));
  Region* const gone = leaving(pages(0, 4));
  auto miss = ticket(pages(10, 14));
  ASSERT_EQ(miss.next(kStart), Step::await_departure);
  ASSERT_EQ(miss.next(kStart + kRoomPatience), Step::refused);
  EXPECT_EQ(miss.result().error.code, ENOMEM);
  EXPECT_TRUE(miss.result().over_limit);
  retire_claimed(*domain, gone, Actor::helper);
}

TEST_F(AcquisitionTest, PatienceForAnEventEndsForAll) {
  std::latch open(1), close(1);
  std::thread event([&] {
    brackets.open(pages(0, 4));
    open.count_down();
    close.wait();
    brackets.close(pages(0, 4));
  });
  open.wait();
  auto first = ticket(pages(2, 6)), second = ticket(pages(2, 6)), ahead = ticket(pages(2, 6));
  ASSERT_EQ(first.next(kStart), Step::await_event);
  EXPECT_TRUE(first.awaited().over()) << "nothing tells of its end: it is looked for again and again";
  ASSERT_EQ(first.next(kStart + kCrossingPatience - 1), Step::await_event);
  ASSERT_EQ(first.next(kStart + kCrossingPatience), Step::refused);
  EXPECT_EQ(first.result().error.code, EAGAIN);
  EXPECT_EQ(second.next(kStart), Step::refused) << "it waited for the same event in vain";
  ahead.request().lease = false;
  EXPECT_EQ(ahead.next(kStart), Step::refused);
  close.count_down();
  event.join();
  ASSERT_EQ(second.next(kStart), Step::register_);
  ASSERT_EQ(registered(second), Step::leased);
  release(second);
}

TEST_F(AcquisitionTest, MemoryThatIsNotWatchedServesOneLeaseAndNoMerge) {
  idle(pages(0, 6));
  auto merge = ticket(pages(4, 10));
  ASSERT_EQ(merge.next(kStart), Step::deregister);
  deregister(merge);
  ASSERT_EQ(merge.next(kStart), Step::register_);
  EXPECT_EQ(merge.range(), pages(0, 10));
  EXPECT_FALSE(merge.serve_alone());
  ASSERT_EQ(merge.registered({Error::make(ENOSYS, "not watched"), {}, {}}, kStart), Step::deregister);
  EXPECT_TRUE(merge.victims().empty());
  ASSERT_EQ(merge.next(kStart), Step::register_);
  EXPECT_EQ(merge.range(), pages(4, 10));
  EXPECT_TRUE(merge.serve_alone());
  ASSERT_EQ(registered(merge), Step::leased);
  EXPECT_FALSE(hits(pages(4, 10)));
  release(merge);
  EXPECT_EQ(reap(), 1u);
}

// One domain's victims at a time: while they leave, they count.
TEST_F(AcquisitionTest, OtherDomainsMakeRoomOneAfterTheOther) {
  limit(pages_bytes(12));
  test::FakeDevice second_device, third_device;
  Domain second(second_device, *budget, brackets, clock, nullptr);
  Domain third(third_device, *budget, brackets, clock, nullptr);
  const std::array<Domain*, 3> all{domain.get(), &second, &third};
  for (Domain* other : {&second, &third}) {
    Acquisition made(*other, {.pages = pages(0, 4)});
    ASSERT_EQ(run(made), Step::leased);
    other->release(made.result().region);
  }

  Acquisition too_large(*domain, {.pages = pages(0, 13)}, all);
  EXPECT_EQ(too_large.next(kStart), Step::refused) << "they went for a request that fits nowhere";
  Acquisition alone(*domain, {.pages = pages(0, 10)});
  EXPECT_EQ(alone.next(kStart), Step::refused);
  EXPECT_TRUE(alone.result().over_limit);

  Acquisition miss(*domain, {.pages = pages(0, 10)}, all);
  for (Domain* other : {&second, &third}) {
    ASSERT_EQ(miss.next(kStart), Step::deregister);
    EXPECT_EQ(&miss.victims_in(), other);
    EXPECT_EQ(miss.victims().size(), 1u);
    deregister(miss);
  }
  ASSERT_EQ(miss.next(kStart), Step::register_);
  ASSERT_EQ(registered(miss), Step::leased);
  EXPECT_EQ(budget->bytes(), pages_bytes(10));
  release(miss);
}

}  // namespace
}  // namespace pinion
