// Registrations ahead that a request overtakes.

#include <gtest/gtest.h>

#include "fixture.h"

namespace pinion::domain_test {
namespace {

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

}  // namespace
}  // namespace pinion::domain_test
