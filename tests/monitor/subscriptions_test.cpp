// Subscriptions by hand: the protocols of libfabric's releases, and everything that is in doubt.
#include "monitor/subscriptions.h"

#include <gtest/gtest.h>

#include <thread>

namespace pinion {
namespace {

constexpr Range kA{0x10000, 0x20000}, kB{0x20000, 0x30000};

class SubscriptionsTest : public ::testing::Test {
 protected:
  /// A whole memory event.
  void change(Range range) {
    brackets_.open(range);
    subscriptions_.post(range);
    brackets_.close(range);
  }
  void lose_sight() {
    brackets_.sight.lost();
    change({0, ~Address{0}});
  }
  void regain_sight() { brackets_.sight.regained(brackets_.sight.look()); }

  Brackets brackets_;
  Subscriptions subscriptions_{brackets_};
};

TEST_F(SubscriptionsTest, ValidUntilAnEventTouchesIt) {
  subscriptions_.subscribe(kA);
  subscriptions_.subscribe(kB);
  EXPECT_TRUE(subscriptions_.valid(kA));
  EXPECT_TRUE(subscriptions_.valid(kA));
  change({kA.end - 1, kA.end});
  EXPECT_FALSE(subscriptions_.valid(kA));
  EXPECT_TRUE(subscriptions_.valid(kB));
}

TEST_F(SubscriptionsTest, WhatWasNeverSubscribedIsNotValid) { EXPECT_FALSE(subscriptions_.valid(kA)); }

TEST_F(SubscriptionsTest, ValidAgainOnceRegisteredAgain) {
  subscriptions_.subscribe(kA);
  for (int i = 0; i < 3; ++i) {
    change(kA);
    EXPECT_FALSE(subscriptions_.valid(kA));  // its holder drops it, without a further call
    subscriptions_.subscribe(kA);
    EXPECT_TRUE(subscriptions_.valid(kA));
  }
}

TEST_F(SubscriptionsTest, ValidAgainWhereHoldersUnsubscribeWhatIsNotValid) {
  subscriptions_.subscribe(kA);
  for (int i = 0; i < 3; ++i) {
    change(kA);
    EXPECT_FALSE(subscriptions_.valid(kA));
    subscriptions_.unsubscribe(kA);
    subscriptions_.subscribe(kA);
    EXPECT_TRUE(subscriptions_.valid(kA));
  }
}

TEST_F(SubscriptionsTest, OneHolderAnewDoesNotMakeAnothersRegistrationGood) {
  for (const bool unsubscribes : {false, true}) {
    SCOPED_TRACE(unsubscribes);
    subscriptions_.subscribe(kA);  // the first cache
    subscriptions_.subscribe(kA);  // the second
    change(kA);
    EXPECT_FALSE(subscriptions_.valid(kA));  // the first asks
    if (unsubscribes) subscriptions_.unsubscribe(kA);
    subscriptions_.subscribe(kA);            // and has registered the present memory
    EXPECT_FALSE(subscriptions_.valid(kA));  // the second checks, whose registration is older
    if (unsubscribes) subscriptions_.unsubscribe(kA);
    EXPECT_FALSE(subscriptions_.valid(kA));  // the first: is right, but counts as stale
    if (unsubscribes) subscriptions_.unsubscribe(kA);
    subscriptions_.subscribe(kA);
    EXPECT_TRUE(subscriptions_.valid(kA));
    subscriptions_.unsubscribe(kA);
    EXPECT_FALSE(subscriptions_.valid(kA));
  }
}

TEST_F(SubscriptionsTest, PartsAreAsValidAsAllThatHoldThem) {
  const Range whole{kA.begin, kB.end}, part{kA.begin + 8, kA.begin + 16};
  subscriptions_.subscribe(whole);
  subscriptions_.subscribe(kA);
  EXPECT_TRUE(subscriptions_.valid(part));
  EXPECT_FALSE(subscriptions_.valid({kA.begin, kB.end + 1}));
  change(kB);  // the whole is stale, kA is not
  EXPECT_TRUE(subscriptions_.valid(kA));
  EXPECT_FALSE(subscriptions_.valid(part));
}

TEST_F(SubscriptionsTest, NothingIsValidWhileItChanges) {
  subscriptions_.subscribe(kA);
  brackets_.open(kA);
  EXPECT_FALSE(subscriptions_.valid(kA));
  subscriptions_.subscribe(kA);  // of the memory before or after the event: undecidable
  brackets_.close(kA);
  EXPECT_FALSE(subscriptions_.valid(kA));
  subscriptions_.subscribe(kA);
  EXPECT_TRUE(subscriptions_.valid(kA));
}

TEST_F(SubscriptionsTest, NothingIsValidThatWasSubscribedInTheDark) {
  subscriptions_.subscribe(kA);
  lose_sight();
  EXPECT_FALSE(subscriptions_.valid(kA));
  subscriptions_.subscribe(kA);
  regain_sight();
  EXPECT_FALSE(subscriptions_.valid(kA));
  subscriptions_.subscribe(kA);
  EXPECT_TRUE(subscriptions_.valid(kA));
}

TEST_F(SubscriptionsTest, MoreEventsThanTheBoardHoldsMakeEverythingStale) {
  subscriptions_.subscribe(kA);
  subscriptions_.subscribe(kB);
  for (int i = 0; i < 5000; ++i) change(kB);
  EXPECT_FALSE(subscriptions_.valid(kA));
  subscriptions_.subscribe(kA);
  EXPECT_TRUE(subscriptions_.valid(kA));
}

TEST_F(SubscriptionsTest, StaleIsToldOnceAndForgotten) {
  subscriptions_.subscribe(kA);
  subscriptions_.subscribe(kB);
  EXPECT_TRUE(subscriptions_.take_stale().empty());
  change(kA);
  EXPECT_EQ(subscriptions_.take_stale(), std::vector<Range>{kA});
  EXPECT_TRUE(subscriptions_.take_stale().empty());
  subscriptions_.forget_stale(kA);
  EXPECT_FALSE(subscriptions_.valid(kA));
  subscriptions_.subscribe(kA);
  subscriptions_.forget_stale(kA);  // too late: this is another registration
  EXPECT_TRUE(subscriptions_.valid(kA));
  EXPECT_TRUE(subscriptions_.valid(kB));
}

TEST_F(SubscriptionsTest, EventsElsewhereAreOfNoInterest) {
  subscriptions_.subscribe(kA);
  EXPECT_FALSE(subscriptions_.post({Address{1} << 30, (Address{1} << 30) + 4096}));
  EXPECT_TRUE(subscriptions_.post({0, ~Address{0}}));
}

// Memory goes from one thread to the next by way of the kernel: its new owner must not find the earlier
// registration valid.
TEST_F(SubscriptionsTest, NeverValidAfterAnEventOfAnotherThread) {
  constexpr int kRounds = 2000;
  std::atomic<int> turn{0};
  std::thread other([&] {
    for (int i = 1; i < kRounds; i += 2) {
      while (turn.load() != i) std::this_thread::yield();
      change(kA);
      turn.store(i + 1);
    }
  });
  for (int i = 0; i < kRounds; i += 2) {
    while (turn.load() != i) std::this_thread::yield();
    EXPECT_FALSE(subscriptions_.valid(kA));
    subscriptions_.subscribe(kA);
    EXPECT_TRUE(subscriptions_.valid(kA));
    turn.store(i + 1);
  }
  other.join();
}

}  // namespace
}  // namespace pinion
